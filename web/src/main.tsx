/** Starts the page. */
import { render } from "preact";
import "./styles/page.css";
import "./styles/chat.css";
import { sharedToken } from "./state/route";
import { begin } from "./state/session";
import { App } from "./views/app";
import { loadRenderer } from "./views/markdown";
import { SharedView } from "./views/shared";

const root = document.getElementById("page")!;
if (sharedToken !== null) {
  render(<SharedView token={sharedToken} />, root);
} else {
  render(<App said={null} />, root);
  void begin().then((said) => render(<App key="begun" said={said} />, root));
}
void loadRenderer();

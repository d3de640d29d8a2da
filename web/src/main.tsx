/** Starts the page. */
import { render } from "preact";
import { beginSpeaking } from "./i18n";
import "./styles/page.css";
import "./styles/sidebar.css";
import "./styles/account.css";
import "./styles/operations.css";
import "./styles/print.css";
import "./styles/chat.css";
import { sharedToken } from "./state/route";
import { begin } from "./state/session";
import { App } from "./views/app";
import { loadRenderer } from "./views/markdown";
import { SharedView } from "./views/shared";

const root = document.getElementById("page")!;
const spoken = beginSpeaking(); // fetched beside the first call, and waited for before the first word
if (sharedToken !== null) {
  void spoken.then(() => render(<SharedView token={sharedToken!} />, root));
} else {
  void spoken.then(() => render(<App said={null} />, root));
  void Promise.all([begin(), spoken]).then(([said]) => render(<App key="begun" said={said} />, root));
}
void loadRenderer();

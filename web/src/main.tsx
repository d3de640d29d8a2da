/** Starts the page. */
import { render } from "preact";
import "./styles/page.css";
import { begin } from "./state/session";
import { App } from "./views/app";
import { loadRenderer } from "./views/markdown";

const root = document.getElementById("page")!;
render(<App said={null} />, root);
void begin().then((said) => render(<App key="begun" said={said} />, root));
void loadRenderer();

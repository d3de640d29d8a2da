/** Asks before a link of a reply opens a host for the first time: an address can carry text of the chat away. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { t } from "../i18n";
import { recall, remember } from "../state/memory";
import { Dialog } from "./dialog";

const MOST_HOSTS = 100;
const asked = signal<URL | null>(null);

export function openLink(event: MouseEvent, address: string): void {
  const url = new URL(address);
  if (url.protocol === "mailto:" || recall<string[]>("hosts", []).includes(url.host)) return;
  event.preventDefault();
  asked.value = url;
}

export function LinkGuard(): JSX.Element | null {
  const url = asked.value;
  if (url === null) return null;
  const close = () => (asked.value = null);
  const open = () => {
    window.open(url.href, "_blank", "noopener,noreferrer");
    close();
  };
  const trust = () => {
    remember("hosts", [...recall<string[]>("hosts", []), url.host].slice(-MOST_HOSTS));
    open();
  };
  return (
    <Dialog title={t("Open this link?")} close={close}>
      <p>{t("The answer links to {host}. The whole address is:", { host: url.host })}</p>
      <p class="address" dir="ltr">{url.href}</p>
      <div class="row">
        <button type="button" class="button" onClick={close}>{t("Cancel")}</button>
        <button type="button" class="button" onClick={trust}>{t("Always for this site")}</button>
        <button type="button" class="button is-main" onClick={open}>{t("Open")}</button>
      </div>
    </Dialog>
  );
}

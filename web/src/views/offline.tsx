/** Says that there is no network, and what that means for what is being written. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { t } from "../i18n";
import { announce } from "../state/announce";
import { Icon } from "./icons";

const isOnline = signal(navigator.onLine);

export function OfflineNotice(): JSX.Element | null {
  useEffect(() => {
    const listen = new AbortController();
    const look = () => {
      if (isOnline.value === navigator.onLine) return;
      isOnline.value = navigator.onLine;
      announce(navigator.onLine ? t("The connection is back.") : t("You are offline."));
    };
    addEventListener("online", look, { signal: listen.signal });
    addEventListener("offline", look, { signal: listen.signal });
    return () => listen.abort();
  }, []);
  if (isOnline.value) return null;
  return (
    <section class="offline" aria-label={t("Connection")}>
      <Icon name="warn" />
      <p>{t("You are offline. What you write is kept here, and answers go on by themselves when the connection is back.")}</p>
    </section>
  );
}

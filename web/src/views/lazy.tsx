/** A part of the page that is fetched when it is first shown. One that can't be fetched says so and can be tried again. */
import { signal } from "@preact/signals";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { t } from "../i18n";

/** `load` gives the part; it is called once, and again after a failure. */
export function lazy<Props extends object>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  const part = signal<{ view: ComponentType<Props> } | null>(null);
  const hasFailed = signal(false);
  const fetchIt = () => {
    hasFailed.value = false;
    load().then((view) => (part.value = { view }), () => (hasFailed.value = true));
  };
  return function Lazy(props: Props): JSX.Element {
    useEffect(() => {
      if (part.value === null) fetchIt();
    }, []);
    if (part.value !== null) {
      const View = part.value.view;
      return <View {...props} />;
    }
    if (!hasFailed.value) return <p class="lazy" aria-busy="true">{t("Loading")}</p>;
    return (
      <p class="lazy" role="alert">
        {t("This part of the page could not be fetched.")} <button type="button" class="button" onClick={fetchIt}>{t("Try again")}</button>
      </p>
    );
  };
}

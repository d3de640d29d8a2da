/** A modal box on the browser's own dialog: focus is kept inside and given back, Escape closes. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { IconButton } from "./icons";

export function Dialog(props: { title: string; close: () => void; wide?: boolean; children: ComponentChildren }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = box.current;
    if (element !== null && !element.open) element.showModal();
  }, []);
  return (
    <dialog
      ref={box}
      class={props.wide ? "dialog is-wide" : "dialog"}
      aria-label={props.title}
      onClose={props.close}
      onClick={(event) => {
        if (event.target === box.current) props.close();
      }}
    >
      <div class="dialog-body">
        <header>
          <h2>{props.title}</h2>
          <IconButton icon="close" label={t("Close")} onClick={props.close} />
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

/** A button with a menu in the browser's top layer: nothing clips it, a click elsewhere or Escape closes it. */
import type { ComponentChildren, JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons";

const GAP_PX = 4;

export interface MenuItem {
  icon: IconName;
  label: string;
  run: () => void;
  isDanger?: boolean;
}

export function Menu(props: { label: string; items: readonly MenuItem[]; children?: ComponentChildren }): JSX.Element {
  const button = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [isOpen, setOpen] = useState(false);
  const choices = () => [...(box.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
  const onToggle = (event: { newState: string }) => {
    const opened = event.newState === "open";
    setOpen(opened);
    if (!opened || button.current === null || box.current === null) return;
    beside(box.current, button.current.getBoundingClientRect());
    choices()[0]?.focus();
  };
  const close = () => {
    box.current?.hidePopover();
    button.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const items = choices();
    const at = items.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      items[(next + items.length) % items.length]?.focus();
    } else if (event.key === "Tab") {
      close();
    }
  };
  return (
    <div class={isOpen ? "menu-root is-open" : "menu-root"}>
      <button ref={button} type="button" class="icon-button" aria-label={props.label} aria-haspopup="menu" aria-expanded={isOpen}
        onClick={() => box.current?.togglePopover()}>
        <Icon name="more" />
      </button>
      <div ref={box} class="menu" role="menu" popover="auto" onToggle={onToggle} onKeyDown={onKeyDown}>
        {isOpen && props.items.map((item) => (
          <button key={item.label} type="button" role="menuitem" tabindex={-1} class={item.isDanger ? "is-danger" : ""} onClick={() => {
            close();
            item.run();
          }}>
            <Icon name={item.icon} />{item.label}
          </button>
        ))}
      </div>
      {props.children}
    </div>
  );
}

// Below the button, or above it where there is no room; at its end, and inside of the window.
function beside(menu: HTMLElement, button: DOMRect): void {
  const { offsetWidth: width, offsetHeight: height } = menu;
  const isRightToLeft = getComputedStyle(menu).direction === "rtl";
  const left = isRightToLeft ? button.left : button.right - width;
  const below = button.bottom + GAP_PX;
  const top = below + height <= innerHeight ? below : Math.max(GAP_PX, button.top - GAP_PX - height);
  menu.style.left = `${Math.max(GAP_PX, Math.min(innerWidth - width - GAP_PX, left))}px`;
  menu.style.top = `${top}px`;
}

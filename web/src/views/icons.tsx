/** The few drawings of the page, as strokes on a 24-unit grid. */
import type { JSX } from "preact";

const PATHS = {
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  up: "M7 11v9M7 20h9.5a2 2 0 0 0 2-1.6l1.2-6a2 2 0 0 0-2-2.4H14V5.5A1.5 1.5 0 0 0 12.5 4L7 11H4v9h3",
  down: "M17 13V4M17 4H7.5a2 2 0 0 0-2 1.6l-1.2 6a2 2 0 0 0 2 2.4H10v4.5a1.5 1.5 0 0 0 1.5 1.5L17 13h3V4h-3",
  again: "M20 11a8 8 0 1 0-2.3 6M20 5v6h-6",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1.2 1.2M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1.2-1.2",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  unkept: "M6 4h12M6 20h12M8 4v3l4 5 4-5V4M8 20v-3l4-5 4 5v3",
  box: "M4 5h16v4H4zM5.5 9v10h13V9M10 13h4",
  gauge: "M4 17a8 8 0 1 1 16 0M12 17l4-5",
  keys: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l4 4",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  close: "M6 6l12 12M18 6L6 18",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  bottom: "M12 5v14M6 13l6 6 6-6",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4",
  moon: "M19 14.5A7.5 7.5 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The mark: people around a table. While a reply is on its way, the word goes round. */
export function Mark({ talking = false }: { talking?: boolean }): JSX.Element {
  const seats = [0, 1, 2, 3, 4].map((seat) => {
    const angle = ((seat * 72 - 90) * Math.PI) / 180;
    return { x: 16 + 11.4 * Math.cos(angle), y: 16 + 11.4 * Math.sin(angle) };
  });
  return (
    <svg class={talking ? "mark is-talking" : "mark"} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <circle class="mark-table" cx="16" cy="16" r="5.6" />
      {seats.map(({ x, y }, seat) => (
        <circle key={seat} class={`mark-seat seat-${seat}`} cx={x.toFixed(2)} cy={y.toFixed(2)} r="3" />
      ))}
    </svg>
  );
}

export function IconButton(props: {
  icon: IconName;
  label: string;
  onClick: (event: MouseEvent) => void;
  pressed?: boolean;
  disabled?: boolean;
  class?: string;
}): JSX.Element {
  return (
    <button
      type="button"
      class={`icon-button ${props.class ?? ""}`}
      aria-label={props.label}
      title={props.label}
      disabled={props.disabled ?? false}
      onClick={props.onClick}
      {...(props.pressed === undefined ? {} : { "aria-pressed": props.pressed })}
    >
      <Icon name={props.icon} />
    </button>
  );
}

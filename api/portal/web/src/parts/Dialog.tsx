import { signal } from "@preact/signals";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { text } from "../text";

interface Open {
  key: number;
  view: () => VNode;
  closed?: () => void;
}

/**
 * The open dialogs, the newest last. They are rendered at the root and hold what they were opened with,
 * so that a change of the page below neither moves nor closes them.
 */
const open = signal<Open[]>([]);
let lastKey = 0;

/** showDialog opens a dialog above the page and any other dialog. It returns what closes it. */
export function showDialog(view: (close: () => void) => VNode, closed?: () => void): () => void {
  const key = ++lastKey;
  const close = () => {
    const found = open.value.find((o) => o.key === key);
    if (!found) return;
    open.value = open.value.filter((o) => o.key !== key);
    found.closed?.();
  };
  open.value = [...open.value, { key, view: () => view(close), closed }];
  return close;
}

/** closeDialogs closes all dialogs: when the page below them is left. */
export function closeDialogs(): void {
  const all = open.value;
  open.value = [];
  for (const o of all) o.closed?.();
}

/** DialogHost renders the open dialogs. */
export function DialogHost() {
  return <>{open.value.map((o) => <Held key={o.key} view={o.view} />)}</>;
}

function Held({ view }: { view: () => VNode }) {
  return view();
}

/** Dialog is a modal dialog. Escape closes it, and the focus returns to where it was. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const dialog = ref.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("textarea, select, input, form button, .buttons a")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={close}>
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="plain" onClick={close} aria-label={text.close}>✕</button>
      </header>
      {children}
    </dialog>
  );
}

import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

interface Props {
  label: string;
  help?: string;
  wrong?: string;
}

type Input = Props & Omit<JSX.InputHTMLAttributes<HTMLInputElement>, "label">;

/** TextField is an input with its label, and what to write in it. */
export function TextField({ label, help, wrong, ...rest }: Input) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input {...rest} id={id} aria-describedby={help || wrong ? id + "-help" : undefined} aria-invalid={wrong ? true : undefined} />
      <Help id={id} help={help} wrong={wrong} />
    </div>
  );
}

type Select = Props & Omit<JSX.SelectHTMLAttributes<HTMLSelectElement>, "label"> & { children: ComponentChildren };

/** SelectField is a choice of one with its label. */
export function SelectField({ label, help, wrong, children, ...rest }: Select) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select {...rest} id={id} aria-describedby={help || wrong ? id + "-help" : undefined} aria-invalid={wrong ? true : undefined}>{children}</select>
      <Help id={id} help={help} wrong={wrong} />
    </div>
  );
}

type Area = Props & Omit<JSX.TextareaHTMLAttributes<HTMLTextAreaElement>, "label">;

/** AreaField is a text of several lines with its label. */
export function AreaField({ label, help, wrong, ...rest }: Area) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea {...rest} id={id} aria-describedby={help || wrong ? id + "-help" : undefined} aria-invalid={wrong ? true : undefined} />
      <Help id={id} help={help} wrong={wrong} />
    </div>
  );
}

/** CheckField is a box to tick with its label. */
export function CheckField({ label, help, wrong, ...rest }: Input) {
  const id = useId();
  return (
    <div class="field field--check">
      <input {...rest} type="checkbox" id={id} aria-describedby={help || wrong ? id + "-help" : undefined} aria-invalid={wrong ? true : undefined} />
      <div><label for={id}>{label}</label><Help id={id} help={help} wrong={wrong} /></div>
    </div>
  );
}

function Help({ id, help, wrong }: { id: string; help?: string; wrong?: string }) {
  if (!help && !wrong) return null;
  return <p class="help" id={id + "-help"}>{wrong && <strong class="wrong">{wrong} </strong>}{help}</p>;
}

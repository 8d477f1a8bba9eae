import { hrefOf, navigate } from "../router";
import { text } from "../text";
import { askAction } from "./ActionForm";

/** Deletion is what is deleted, and how. */
export interface Deletion {
  name: string;
  help: string;
  send: () => Promise<unknown>;
  /** The page that is shown afterwards. */
  back: string;
}

/** askDelete asks for the name of what is deleted, and deletes it. */
export function askDelete({ name, help, send, back }: Deletion): void {
  askAction({
    title: `${text.projects.delete}: ${name}`, button: text.projects.delete, reason: "none", danger: true, confirmName: name, body: help,
    send: async () => {
      await send();
      return text.projects.deleted(name);
    },
    done: () => navigate(hrefOf(back)),
  });
}

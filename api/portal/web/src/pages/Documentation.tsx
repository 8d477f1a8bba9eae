import { Heading, Section } from "../parts/Facts";
import { Outside } from "../parts/Link";
import { text, words } from "../text";

/** Documentation links to the pages that the server holds of its own version. */
export function Documentation() {
  return (
    <>
      <Heading title={text.docs.title} />
      <p><Outside href={"/docs"}>{text.docs.reference}</Outside></p>
      <Section title={text.docs.guides}>
        <ul class="links">{Object.entries(text.docs.pages).map(([page, title]) => <li key={page}><Outside href={`/docs/${page}`}>{title}</Outside></li>)}</ul>
      </Section>
      <Section title={text.docs.runbooks}>
        <p class="quiet">{text.docs.runbooksHelp}</p>
        <ul class="links">{text.docs.runbookPages.map((page) => <li key={page}><Outside href={`/docs/runbooks/${page}`}>{words(page)}</Outside></li>)}</ul>
      </Section>
    </>
  );
}

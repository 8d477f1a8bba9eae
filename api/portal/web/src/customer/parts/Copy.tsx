import { Button, Code, CopyButton, Group } from "@mantine/core";

/** Copy shows a text that is copied whole, such as a command. */
export function Copy({ value, label }: { value: string; label: string }) {
  return (
    <Group gap="xs" className="copy">
      <Code>{value}</Code>
      <CopyButton value={value}>
        {({ copied, copy }) => <Button size="compact-xs" variant="default" onClick={copy} aria-label={`Copy: ${label}`}>{copied ? "Copied" : "Copy"}</Button>}
      </CopyButton>
    </Group>
  );
}

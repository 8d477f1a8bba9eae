import { Alert, Text } from "@mantine/core";
import { Copy } from "./Copy";

/** Secret shows a value that the server gives out once. */
export function Secret({ label, value }: { label: string; value: string | undefined }) {
  if (!value) return <Alert color="orange" title="The secret was given out before">This request was sent twice, and the server shows a secret once. Delete it and make another one.</Alert>;
  return <Alert title={`${label}: copy it now`}><Text>It is shown this once and is not stored here.</Text><Copy label={label} value={value} /></Alert>;
}

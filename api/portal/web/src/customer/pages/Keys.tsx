import { Code, FileButton, Button, Group, Textarea, TextInput, Text } from "@mantine/core";
import { useState } from "react";
import { call, client } from "../../api/client";
import { refuse } from "../../api/problem";
import { useKeys } from "../api";
import { DataTable } from "../parts/DataTable";
import { Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { Ask, SendForm } from "../parts/SendForm";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";

const mostBytes = 16384; // of a public key, as in the API

/** Keys lists the SSH keys of a project, adds one that is pasted or read from a file, and deletes them. */
export function Keys({ project }: PageProps) {
  const keys = useKeys(project);
  const [line, setLine] = useState("");
  const [name, setName] = useState("");
  const read = (file: File | null) => {
    if (!file) return;
    void file.slice(0, mostBytes).text().then((text) => {
      setLine(text.trim());
      if (name === "") setName(file.name.replace(/\.pub$/, ""));
    });
  };
  const add = async (_: unknown, key: string) => {
    if (line.includes("PRIVATE KEY")) refuse("This is a private key. Never give it to anybody: choose the file whose name ends in .pub.");
    const made = await call(() => client.POST("/api/v1/projects/{id}/ssh-keys", { params: { path: { id: project }, header: { "Idempotency-Key": key } }, body: { name: name.trim(), public_key: line.trim() } }));
    setLine("");
    setName("");
    return `The key ${made.name ?? ""} is added.`;
  };
  return (
    <>
      <Heading>SSH keys</Heading>
      <Loaded query={keys}>
        {(list) => (
          <DataTable caption="SSH keys of the project" rows={list} keyOf={(k) => k.id ?? ""} empty="The project has no SSH key." columns={[
            { label: "Name", header: true, cell: (k) => k.name },
            { label: "Type", cell: (k) => k.type },
            { label: "Fingerprint", cell: (k) => <Code>{k.fingerprint}</Code> },
            { label: "Added", cell: (k) => <Time at={k.created_at} /> },
            {
              label: "Action", cell: (k) => (
                <Ask small danger title={`Delete the key ${k.name ?? ""}`} button="Delete" label={`Delete: ${k.name ?? ""}`}
                  send={async () => {
                    await call(() => client.DELETE("/api/v1/projects/{id}/ssh-keys/{key_id}", { params: { path: { id: project, key_id: k.id ?? "" } } }));
                    return "The key is deleted.";
                  }}>
                  <Text>The nodes of the project stop accepting this key. Sessions that are open stay open.</Text>
                </Ask>
              ),
            },
          ]} />
        )}
      </Loaded>
      <Section title="Add a key">
        <SendForm button="Add the key" send={add}>
          <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} required withAsterisk={false} maxLength={100} description="Such as the device that the key is on" />
          <Textarea label="Public key" value={line} onChange={(e) => setLine(e.currentTarget.value)} required withAsterisk={false} maxLength={mostBytes} rows={4} spellCheck={false}
            description="The one line of the file ~/.ssh/id_ed25519.pub" />
          <Group>
            <FileButton onChange={read} accept=".pub,text/plain" inputProps={{ "aria-label": "File of the public key" }}>{(props) => <Button variant="default" {...props}>Choose a file</Button>}</FileButton>
            <Text size="sm" c="dimmed">or paste the key above</Text>
          </Group>
        </SendForm>
      </Section>
    </>
  );
}

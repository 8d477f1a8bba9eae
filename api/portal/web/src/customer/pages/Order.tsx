import { Alert, Anchor, Checkbox, Fieldset, NativeSelect, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useRef, useState } from "react";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { refuse } from "../../api/problem";
import { serverNow } from "../../serverTime";
import { useBalance, useCatalogue, useKeys } from "../api";
import { Facts, Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { amountText } from "../parts/Money";
import { SendForm } from "../parts/SendForm";
import type { Given } from "../parts/SendForm";
import { tagsOf } from "../parts/tags";
import type { PageProps } from "../pages";
import { costOf, ratesOf, withoutPrice } from "../prices";
import { navigate, projectHref } from "../route";
import { Available, OfferFacts } from "./Catalogue";

const secondsPerHour = 3600;

/** Order asks for a node of one offer of the catalogue, and shows before what it costs. */
export function Order({ project, id }: PageProps) {
  const catalogue = useCatalogue(project);
  return (
    <Loaded query={catalogue}>
      {(offers) => {
        const offer = offers.find((o) => o.sku_id === id);
        if (!offer) return <><Heading>Not in the catalogue</Heading><p>This node is no longer offered. <Anchor href={projectHref(project, "/catalogue")}>See what is offered</Anchor></p></>;
        return <OrderForm project={project} offer={offer} />;
      }}
    </Loaded>
  );
}

function OrderForm({ project, offer }: { project: string; offer: Schemas["CatalogueItem"] }) {
  const keys = useKeys(project);
  const [hours, setHours] = useState("");
  const ends = useRef({ key: "", hours: 0, at: 0 });
  const send = async (given: Given, key: string) => {
    const all = keys.data ?? [];
    const chosen = all.map((k) => k.id ?? "").filter((k) => given[`key ${k}`] === "on");
    if (all.length > 0 && chosen.length === 0) refuse("Choose at least one SSH key: without a key nobody can log in.");
    const end = Number(given["hours"]);
    // A repeated request is the same request, so it ends at the same time.
    if (ends.current.key !== key || ends.current.hours !== end) ends.current = { key, hours: end, at: serverNow() + end * secondsPerHour * 1000 };
    const made = await call(() => client.POST("/api/v1/projects/{id}/allocations", {
      params: { path: { id: project }, header: { "Idempotency-Key": key } },
      body: {
        sku_id: offer.sku_id ?? "", name: given["name"] || undefined, tags: tagsOf(given["tags"]), ssh_key_ids: chosen, wait_seconds: Number(given["wait"]),
        expires_at: end > 0 ? new Date(ends.current.at).toISOString() : undefined,
      },
    }));
    navigate(projectHref(project, `/allocations/${encodeURIComponent(made.id ?? "")}`));
    return "The node is ordered.";
  };
  return (
    <>
      <Heading side={<Available of={offer.availability} />}>{`Order: ${offer.title || offer.sku || ""}`}</Heading>
      {offer.description && <Text>{offer.description}</Text>}
      <OfferFacts offer={offer} />
      <Section title="What it costs"><Costs project={project} offer={offer} hours={Number(hours)} /></Section>
      <Section title="Your order">
        <SendForm button="Allocate the node" send={send}>
          <TextInput name="name" label="Name" maxLength={100} description="How you recognise the node; it can be changed" />
          <TextInput name="hours" label="Release it after (hours)" type="number" min={1} max={8760} value={hours} onChange={(e) => setHours(e.currentTarget.value)} description="Left empty, it runs until you release it or the balance is used up" />
          <NativeSelect name="wait" label="If none is free" data={[{ value: "0", label: "refuse the order" }, { value: "900", label: "wait for up to 15 minutes" }, { value: "3600", label: "wait for up to an hour" }, { value: "86400", label: "wait for up to a day" }]} />
          <Loaded query={keys}>
            {(list) => list.length === 0
              ? <Alert color="yellow" title="The project has no SSH key">Nobody could log in. <Anchor href={projectHref(project, "/keys")}>Add a key first</Anchor></Alert>
              : (
                <Fieldset legend="SSH keys that may log in">
                  <Stack gap="xs">{list.map((k) => <Checkbox key={k.id} name={`key ${k.id ?? ""}`} defaultChecked label={k.name ?? ""} description={k.fingerprint} />)}</Stack>
                </Fieldset>
              )}
          </Loaded>
          <Textarea name="tags" label="Tags" rows={2} maxLength={4000} description="One KEY=VALUE on each line" />
        </SendForm>
      </Section>
    </>
  );
}

/** Costs shows the price, what is held back, and what the chosen hours cost. */
function Costs({ project, offer, hours }: { project: string; offer: Schemas["CatalogueItem"]; hours: number }) {
  const balance = useBalance(project);
  const funds = balance.data;
  const rate = ratesOf(offer).find((r) => !funds?.currency || r.currency === funds.currency);
  const after = funds && rate && (funds.available_minor ?? 0) - (rate.hold_minor ?? 0);
  return (
    <>
      {rate ? (
        <Facts facts={[
          ["Price an hour", amountText(rate.rate_minor_per_hour, rate)],
          [`Cost of ${hours} hours`, hours > 0 && amountText(costOf(rate, hours), rate)],
          ["At least", amountText(rate.minimum_charge_minor, rate)],
          ["Held back of the balance while it runs", amountText(rate.hold_minor, rate)],
          ["Available now", funds && amountText(funds.available_minor, funds)],
          ["Available after the order", funds && after !== undefined && amountText(after, funds)],
        ]} />
      ) : (
        <Facts facts={[["Price an hour", withoutPrice(offer)], ["Available now", funds && amountText(funds.available_minor, funds)]]} />
      )}
      {after !== undefined && after < 0 && <Alert color="orange" title="The balance does not suffice"><Anchor href={projectHref(project, "/balance")}>Top up</Anchor> at least {funds && amountText(-after, funds)} before you order.</Alert>}
      <Text size="sm" c="dimmed">Charging begins when you can log in and ends when your access has ended. A node is charged for at least ten minutes.</Text>
    </>
  );
}

import { Anchor, Badge, Card, Group, Stack, Text } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { useCatalogue } from "../api";
import { Facts, Heading } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { amountText } from "../parts/Money";
import { words } from "../parts/Status";
import type { PageProps } from "../pages";
import { ratesOf, withoutPrice } from "../prices";
import { projectHref } from "../route";

const availability: Record<string, [string, string]> = {
  none: ["red", "none free: you can wait for one"], few: ["yellow", "1 to 3 free"], some: ["green", "4 to 15 free"], many: ["green", "many free"],
};

/** Available says how many nodes of an offer are free. */
export function Available({ of }: { of: string | undefined }) {
  const [color, text] = availability[of ?? ""] ?? ["gray", words(of)];
  return <Badge variant="light" color={color} className="status">{text}</Badge>;
}

/** Price says what a node of an offer costs an hour. */
function Price({ offer }: { offer: Schemas["CatalogueItem"] }) {
  const rates = ratesOf(offer);
  if (rates.length === 0) return <>{withoutPrice(offer)}</>;
  return <strong>{rates.map((r) => `${amountText(r.rate_minor_per_hour, r)} an hour`).join(", ")}</strong>;
}

/** OfferFacts lists what an offer is. */
export function OfferFacts({ offer }: { offer: Schemas["CatalogueItem"] }) {
  return (
    <Facts facts={[
      ["GPUs", offer.gpus ? `${offer.gpus} × ${offer.gpu_model ?? ""}` : ""],
      ["System", [offer.image?.os, offer.image?.kernel, offer.image?.architecture].filter(Boolean).join(", ")],
      ["Network", offer.isolation === "dedicated_network" ? "a network of your own" : offer.isolation === "shared_network" ? "shared with nodes of other customers" : words(offer.isolation)],
      ["SKU", offer.sku],
      ["Price", <Price offer={offer} />],
    ]} />
  );
}

/** Catalogue lists what can be ordered. */
export function Catalogue({ project }: PageProps) {
  const catalogue = useCatalogue(project);
  return (
    <>
      <Heading>Order a node</Heading>
      <Loaded query={catalogue}>
        {(offers) => offers.length === 0 ? <Text>Nothing is offered now.</Text> : (
          <Stack>
            {offers.map((o) => (
              <Card key={o.sku_id} withBorder>
                <Group justify="space-between">
                  <Anchor href={projectHref(project, `/catalogue/${encodeURIComponent(o.sku_id ?? "")}`)} fw={600}>{o.title || o.sku || ""}</Anchor>
                  <Available of={o.availability} />
                </Group>
                {o.description && <Text>{o.description}</Text>}
                <OfferFacts offer={o} />
              </Card>
            ))}
          </Stack>
        )}
      </Loaded>
    </>
  );
}

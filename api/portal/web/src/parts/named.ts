import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { call, client } from "../api/client";
import { session } from "../session";

/** Named is a site or a SKU as a choice in a form. */
export interface Named {
  id: string;
  name: string;
}

const sites = signal<Named[] | undefined>(undefined);
const skus = signal<Named[] | undefined>(undefined);
const accounts = signal<Named[] | undefined>(undefined);
const most = 1000; // choices in one select; a larger installation filters by id

type Reader = (cursor: string) => Promise<{ data?: { id?: string; name?: string }[]; next_cursor?: string }>;

async function readAll(read: Reader): Promise<Named[]> {
  const all: Named[] = [];
  let cursor = "";
  do {
    const page = await read(cursor);
    for (const row of page.data ?? []) all.push({ id: row.id ?? "", name: row.name ?? row.id ?? "" });
    cursor = page.next_cursor ?? "";
  } while (cursor && all.length < most);
  return all;
}

const query = (cursor: string) => ({ params: { query: { limit: 200, cursor: cursor || undefined } } });

function useNamed(held: typeof sites, read: Reader): Named[] {
  const who = session.value?.principal.id;
  useEffect(() => {
    let left = false;
    // A viewer may not list all of them: ids are shown then, and the filter takes none.
    readAll(read).then((all) => { if (!left) held.value = all; }, () => undefined);
    return () => { left = true; };
  }, [who]);
  return held.value ?? [];
}

/** useSites returns the sites by name, once they are read. */
export function useSites(): Named[] {
  return useNamed(sites, (cursor) => call(() => client.GET("/api/v1/admin/maas-sites", query(cursor))));
}

/** useSkus returns the SKUs by name, once they are read. */
export function useSkus(): Named[] {
  return useNamed(skus, (cursor) => call(() => client.GET("/api/v1/admin/skus", query(cursor))));
}

/** useAccounts returns the billing accounts by name, once they are read. */
export function useAccounts(): Named[] {
  return useNamed(accounts, (cursor) => call(() => client.GET("/api/v1/admin/billing-accounts", query(cursor))));
}

/** choicesOf returns names as the choices of a form. */
export function choicesOf(all: Named[]): { value: string; label: string }[] {
  return all.map((n) => ({ value: n.id, label: n.name }));
}

/** nameOf returns the name of an id, or the id while the name is not known. */
export function nameOf(all: Named[], id: string | undefined): string {
  return all.find((n) => n.id === id)?.name ?? id ?? "";
}

/** useProfiles returns the profiles of a site by name, once they are read. */
export function useProfiles(site: string): Named[] {
  const [all, setAll] = useState<{ site: string; profiles: Named[] }>();
  useEffect(() => {
    if (!site) return undefined;
    let left = false;
    readAll((cursor) => call(() => client.GET("/api/v1/admin/maas-sites/{id}/profiles", { params: { path: { id: site }, query: { limit: 200, cursor: cursor || undefined } } })))
      .then((profiles) => { if (!left) setAll({ site, profiles }); }, () => undefined);
    return () => { left = true; };
  }, [site]);
  return all?.site === site ? all.profiles : [];
}

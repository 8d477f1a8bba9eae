import { Anchor } from "@mantine/core";
import { useEffect } from "react";
import { hrefOf } from "./route";

/** Elsewhere tells a customer at an address that is not for customers where his own pages are. */
export function Elsewhere() {
  useEffect(() => { document.title = "Not your page · Slipway"; }, []);
  return (
    <main className="alone">
      <h1>This page is not for customers</h1>
      <p>You are signed in as a customer. This address is for operators of the platform.</p>
      <p><Anchor href={hrefOf("/")}>Go to your own portal</Anchor></p>
    </main>
  );
}

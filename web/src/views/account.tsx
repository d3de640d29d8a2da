/** The person's plan, budgets and API keys. A key's secret is shown once and kept nowhere. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, sentenceOf } from "../api";
import { forgetPerson } from "../state/memory";
import { account, refreshAccount, signOut } from "../state/session";
import { toast } from "../state/toasts";
import type { ApiKey } from "../wire";
import { budgetTitle, resetText } from "../text/budget";
import { Dialog } from "./dialog";
import { IconButton } from "./icons";
import { Meter } from "./meter";
import { CopyButton } from "./message";

export const accountOpen = signal(false);

export function AccountPanel(): JSX.Element | null {
  const me = account.value;
  useEffect(() => {
    if (accountOpen.value) void refreshAccount();
  }, [accountOpen.value]);
  if (!accountOpen.value || !me) return null;
  const leave = async () => {
    try {
      await signOut();
    } catch (error) {
      toast(sentenceOf(error), "bad");
    }
  };
  return (
    <Dialog title="Account" close={() => (accountOpen.value = false)} wide>
      <p class="who"><strong dir="auto">{me.name}</strong> <span class="plan">{me.plan}</span></p>
      <section>
        <h3>Usage</h3>
        <ul class="budgets">
        {me.budgets.map((budget) => (
          <li key={budget.name}>
            <span>{budgetTitle(budget.name)}</span>
            <span class="numbers">
              {budget.limit === null ? "no limit" : `${(budget.remaining ?? 0).toLocaleString()} of ${budget.limit.toLocaleString()} left`}
            </span>
            {budget.limit !== null && <Meter budget={budget} />}
            {resetText(budget) !== "" && <span class="hint">{resetText(budget)}</span>}
          </li>
        ))}
        </ul>
      </section>
      <ApiKeys />
      <Leaving />
      <div class="row">
        <a class="hint licences" href="/licences.txt" target="_blank">Licences</a>
        <button type="button" class="button" onClick={() => void leave()}>Sign out</button>
      </div>
    </Dialog>
  );
}

function ApiKeys(): JSX.Element {
  const [keys, setKeys] = useState<ApiKey[] | null>(null);
  const [name, setName] = useState("");
  const [secret, setSecret] = useState<string | null>(null);
  const [revoking, setRevoking] = useState<string | null>(null);

  const load = () => attempt(async () => setKeys((await call<{ items: ApiKey[] }>("GET", "/v1/api-keys")).items));
  useEffect(() => void load(), []);
  const create = () =>
    attempt(async () => {
      const made = await call<{ secret: string }>("POST", "/v1/api-keys", { name: name.trim() });
      setSecret(made.secret);
      setName("");
      await load();
    });
  const revoke = (id: string) =>
    attempt(async () => {
      await call("DELETE", `/v1/api-keys/${id}`);
      setRevoking(null);
      await load();
    });

  return (
    <section>
      <h3>API keys</h3>
      <p class="hint">For programs that speak the OpenAI API, at <code>{location.origin}/v1</code>.</p>
      {secret !== null && (
        <div class="secret" role="status">
          <p>This is shown only now. Keep it somewhere safe.</p>
          <p class="secret-row"><code>{secret}</code><CopyButton text={secret} /></p>
        </div>
      )}
      <ul class="keys">
        {keys?.map((key) => (
          <li key={key.id}>
            <span><strong dir="auto">{key.name}</strong> <code>{key.prefix}…</code></span>
            <span class="hint">{key.lastUsedAt === null ? "never used" : `used ${new Date(key.lastUsedAt).toLocaleDateString()}`}</span>
            {revoking === key.id
              ? <button type="button" class="button is-danger" onClick={() => void revoke(key.id)}>Revoke now</button>
              : <IconButton icon="trash" label={`Revoke ${key.name}`} onClick={() => setRevoking(key.id)} />}
          </li>
        ))}
      </ul>
      <form class="row key-form" onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "") void create();
      }}>
        <label class="field"><span class="sr">Name of the new key</span>
          <input value={name} maxLength={80} placeholder="Name of the new key" onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button" disabled={name.trim() === ""}>Create key</button>
      </form>
    </section>
  );
}

function Leaving(): JSX.Element {
  const [password, setPassword] = useState("");
  const leave = () =>
    attempt(async () => {
      await call("DELETE", "/v1/me", { password });
      forgetPerson();
      location.replace("/");
    });
  return (
    <details class="leaving">
      <summary>Delete the account</summary>
      <p class="hint">The account, every conversation and every key are deleted for good. The name stays taken.</p>
      <form class="row key-form" onSubmit={(event) => {
        event.preventDefault();
        void leave();
      }}>
        <label class="field"><span class="sr">Password</span>
          <input type="password" autocomplete="current-password" value={password} placeholder="Your password"
            onInput={(event) => setPassword(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button is-danger" disabled={password === ""}>Delete for good</button>
      </form>
    </details>
  );
}

async function attempt(what: () => Promise<void>): Promise<void> {
  try {
    await what();
  } catch (error) {
    toast(sentenceOf(error), "bad");
  }
}

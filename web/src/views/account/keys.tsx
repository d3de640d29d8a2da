/** API keys. A key's secret is shown once and kept nowhere. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { day, t } from "../../i18n";
import type { ApiKey } from "../../wire";
import { IconButton } from "../icons";
import { CopyButton } from "../message";
import { attempt } from "./attempt";

export function Keys(): JSX.Element {
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
      <h3>{t("API keys")}</h3>
      <p class="hint">{t("For programs that speak the OpenAI API, at this address:")} <code>{location.origin}/v1</code></p>
      {secret !== null && (
        <div class="secret" role="status">
          <p>{t("This is shown only now. Keep it somewhere safe.")}</p>
          <p class="secret-row"><code>{secret}</code><CopyButton text={secret} /></p>
        </div>
      )}
      {keys?.length === 0 && <p class="hint">{t("You have none yet. A key lets a program ask in your name, within your budgets.")}</p>}
      <ul class="keys">
        {keys?.map((key) => (
          <li key={key.id}>
            <span><strong dir="auto">{key.name}</strong> <code>{key.prefix}…</code></span>
            <span class="hint">{key.lastUsedAt === null ? t("never used") : t("used {day}", { day: day(key.lastUsedAt) })}</span>
            {revoking === key.id
              ? <button type="button" class="button is-danger" onClick={() => void revoke(key.id)}>{t("Revoke now")}</button>
              : <IconButton icon="trash" label={t("Revoke {name}", { name: key.name })} onClick={() => setRevoking(key.id)} />}
          </li>
        ))}
      </ul>
      <form class="row key-form" onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "") void create();
      }}>
        <label class="field"><span class="sr">{t("Name of the new key")}</span>
          <input value={name} maxLength={80} placeholder={t("Name of the new key")} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button" disabled={name.trim() === ""}>{t("Create key")}</button>
      </form>
    </section>
  );
}

/** Accounts: find one, change its plan or role, end it. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { day, t } from "../../i18n";
import { account } from "../../state/session";
import { toast } from "../../state/toasts";
import type { Plan, User } from "../../wire-admin";
import { attempt } from "../account/attempt";
import { amount } from "./figures";

interface UserPage {
  items: User[];
  nextCursor: string | null;
  count: number;
}

export function UsersView(): JSX.Element {
  const [plans, setPlans] = useState<string[]>([]);
  const [page, setPage] = useState<UserPage | null>(null);
  const [name, setName] = useState("");
  const [plan, setPlan] = useState("");
  const query = (cursor: string | null) => {
    const params = new URLSearchParams({ limit: "50" });
    if (name.trim() !== "") params.set("name", name.trim());
    if (plan !== "") params.set("plan", plan);
    if (cursor !== null) params.set("cursor", cursor);
    return `/v1/admin/users?${params}`;
  };
  const load = () => attempt(async () => setPage(await call<UserPage>("GET", query(null))));
  const more = () => attempt(async () => {
    const next = await call<UserPage>("GET", query(page!.nextCursor));
    setPage({ ...next, items: [...page!.items, ...next.items] });
  });
  useEffect(() => void attempt(async () => setPlans((await call<{ items: Plan[] }>("GET", "/v1/admin/plans")).items.map((one) => one.name))), []);
  useEffect(() => void load(), [plan]);
  const changed = (user: User) => setPage((before) => before && { ...before, items: before.items.map((one) => (one.id === user.id ? user : one)) });
  return (
    <section class="panel">
      <h2>{t("Users")} {page !== null && <span class="hint">{t("{n} accounts", { n: page.count })}</span>}</h2>
      <form class="row filters" onSubmit={(event) => {
        event.preventDefault();
        void load();
      }}>
        <label class="field"><span class="sr">{t("Name of an account")}</span>
          <input value={name} placeholder={t("Name of an account")} maxLength={64} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label class="choice"><span class="sr">{t("Plan")}</span>
          <select value={plan} onChange={(event) => setPlan(event.currentTarget.value)}>
            <option value="">{t("All plans")}</option>
            {plans.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
        <button type="submit" class="button">{t("Find")}</button>
      </form>
      {page?.items.length === 0 && <p class="hint">{t("No account is found. A name must be whole; capitals do not matter.")}</p>}
      {page !== null && page.items.length > 0 && (
        <div class="table-scroll" tabindex={0} role="region" aria-label={t("Users")}>
          <table class="figures">
            <thead>
              <tr><th scope="col">{t("Name")}</th><th scope="col">{t("Plan")}</th><th scope="col">{t("Role")}</th><th scope="col">{t("Since")}</th><th scope="col"><span class="sr">{t("Actions")}</span></th></tr>
            </thead>
            <tbody>{page.items.map((one) => <UserRow key={one.id} user={one} plans={plans} changed={changed} />)}</tbody>
          </table>
        </div>
      )}
      {page?.nextCursor != null && <div class="row"><button type="button" class="button" onClick={() => void more()}>{t("Show more")}</button></div>}
      <p class="hint">{page !== null && t("{n} are shown.", { n: amount(page.items.length) })}</p>
    </section>
  );
}

function UserRow({ user, plans, changed }: { user: User; plans: readonly string[]; changed: (user: User) => void }): JSX.Element {
  const [asks, setAsks] = useState(false);
  const isMe = account.value?.id === user.id;
  const change = (fields: Partial<User>) => attempt(async () => {
    changed(await call<User>("PATCH", `/v1/admin/users/${user.id}`, fields));
    setAsks(false);
    toast(t("Changed: {name}", { name: user.name }));
  });
  const known = plans.includes(user.plan) ? plans : [user.plan, ...plans];
  return (
    <tr class={user.disabled ? "is-disabled" : ""}>
      <th scope="row" dir="auto">{user.name}{user.disabled && <span class="hint">{t("disabled")}</span>}</th>
      <td>
        <label class="choice"><span class="sr">{t("Plan of {name}", { name: user.name })}</span>
          <select value={user.plan} onChange={(event) => void change({ plan: event.currentTarget.value })}>
            {known.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
      </td>
      <td>
        <label class="choice"><span class="sr">{t("Role of {name}", { name: user.name })}</span>
          <select value={user.role} disabled={isMe} onChange={(event) => void change({ role: event.currentTarget.value as User["role"] })}>
            <option value="user">{t("user")}</option>
            <option value="admin">{t("administrator")}</option>
          </select>
        </label>
      </td>
      <td>{day(user.createdAt)}</td>
      <td>
        {user.disabled
          ? <button type="button" class="button is-small" onClick={() => void change({ disabled: false })}>{t("Enable")}</button>
          : asks
            ? <button type="button" class="button is-small is-danger" onClick={() => void change({ disabled: true })}>{t("End everything now")}</button>
            : <button type="button" class="button is-small" disabled={isMe} onClick={() => setAsks(true)}>{t("Disable")}</button>}
      </td>
    </tr>
  );
}

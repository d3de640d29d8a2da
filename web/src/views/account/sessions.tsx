/** The browsers that are signed in, each of which can be signed out from here. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { day, moment, t } from "../../i18n";
import { account } from "../../state/session";
import { toast } from "../../state/toasts";
import type { OpenSession } from "../../wire";
import { attempt } from "./attempt";

export function Sessions(): JSX.Element {
  const [sessions, setSessions] = useState<OpenSession[] | null>(null);
  const load = () => attempt(async () => setSessions((await call<{ items: OpenSession[] }>("GET", "/v1/sessions")).items));
  useEffect(() => void load(), []);
  const end = (id: string) => attempt(async () => {
    await call("DELETE", `/v1/sessions/${id}`);
    await load();
  });
  const endOthers = () => attempt(async () => {
    await call("DELETE", "/v1/sessions");
    toast(t("All other browsers are signed out."));
    await load();
  });
  const others = sessions?.filter((one) => !one.isCurrent).length ?? 0;
  return (
    <section>
      <h3>{t("Sessions")}</h3>
      <p class="hint">{t("The browsers that are signed in to your account. If you do not know one, sign it out.")}</p>
      <SignsInBy />
      <ul class="keys">
        {sessions?.map((one) => (
          <li key={one.id}>
            <span>
              <strong>{one.isCurrent ? t("This browser") : t("Another browser")}</strong>{" "}
              <span class="hint">{t("since {time}, until {day}", { time: moment(one.createdAt), day: day(one.expiresAt) })}</span>
            </span>
            {!one.isCurrent && <button type="button" class="button" onClick={() => void end(one.id)}>{t("Sign out")}</button>}
          </li>
        ))}
      </ul>
      {sessions !== null && others > 1 && (
        <div class="row"><button type="button" class="button is-danger" onClick={() => void endOthers()}>{t("Sign out all others")}</button></div>
      )}
    </section>
  );
}

/** By what one signs in to this account. */
function SignsInBy(): JSX.Element | null {
  const by = account.value?.signIn;
  if (by === undefined) return null;
  const names = [...(by.password ? [t("a password")] : []), ...by.providers.map((one) => one.title)];
  return names.length === 0 ? null : <p class="hint">{t("You sign in by: {ways}", { ways: names.join(", ") })}</p>;
}

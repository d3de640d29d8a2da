/** Everything out, conversations in, what may be used of it, and the end of the account. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, Refused } from "../../api";
import { number, t } from "../../i18n";
import { forgetPerson } from "../../state/memory";
import { cancelImport, exporting, fetchExport, followImport, hasEnded, importFile, lastImport, uploading } from "../../state/moving";
import { account, hasPassword } from "../../state/session";
import { toast } from "../../state/toasts";
import type { ImportReport } from "../../wire";
import { attempt } from "./attempt";

export function Data(): JSX.Element {
  return (
    <>
      <Export />
      <Import />
      <Evaluation />
      <Leaving />
    </>
  );
}

function Export(): JSX.Element {
  const [asks, setAsks] = useState(false);
  const asksPassword = asks && hasPassword.value;
  const [password, setPassword] = useState("");
  const state = exporting.value;
  const start = async () => {
    try {
      save(await fetchExport(password), `tertulia-export-${new Date().toISOString().slice(0, 10)}.zip`);
      setAsks(false);
      setPassword("");
    } catch (error) {
      if (error instanceof Refused && error.problem.status === 403 && !asks) return setAsks(true);
      await attempt(() => Promise.reject(error));
    }
  };
  return (
    <section>
      <h3>{t("Export")}</h3>
      <p class="hint">{t("Every conversation as text and as data, with your account and instructions, in one zip archive.")}</p>
      {state !== null && <Progress label={exportText(state.conversations, state.total, state.bytes)} share={state.total > 0 ? state.conversations / state.total : null} />}
      <form class="row key-form" onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}>
        {asksPassword && <PasswordField value={password} change={setPassword} />}
        <button type="submit" class="button" disabled={state !== null || (asksPassword && password === "")}>{t("Export everything")}</button>
      </form>
      {asks && !hasPassword.value && <SignInAgain />}
    </section>
  );
}

function exportText(done: number, total: number, bytes: number): string {
  const size = number(bytes / 1e6, { maximumFractionDigits: 1 });
  return t("{done} of {total} conversations, {size} MB", { done, total, size });
}

function Import(): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const report = lastImport.value;
  const sent = uploading.value;
  const isRunning = sent !== null || (report !== null && !hasEnded(report));
  useEffect(() => void followImport().catch(() => undefined), []);
  const take = (file: File | undefined) => {
    if (file !== undefined) void attempt(() => importFile(file));
  };
  return (
    <section>
      <h3>{t("Import")}</h3>
      <p class="hint">{t("An export of Tertulia, ChatGPT or Open WebUI: a zip archive or a JSON file. Nothing comes in twice.")}</p>
      {sent !== null && <Progress label={t("{percent} % of the file sent", { percent: Math.floor(sent * 100) })} share={sent} />}
      {sent === null && report !== null && <Report report={report} />}
      <input ref={input} type="file" class="sr" tabindex={-1} aria-label={t("File to import")} accept=".zip,.json,application/zip,application/json"
        onChange={(event) => {
          take(event.currentTarget.files?.[0]);
          event.currentTarget.value = "";
        }} />
      <div class="row">
        {report !== null && !hasEnded(report) && (
          <button type="button" class="button" onClick={() => void attempt(cancelImport)}>{t("Cancel the import")}</button>
        )}
        <button type="button" class="button" disabled={isRunning} onClick={() => input.current?.click()}>{t("Choose a file")}</button>
      </div>
    </section>
  );
}

function Report({ report }: { report: ImportReport }): JSX.Element {
  const { imported, alreadyHere, changedSince, refused } = report.conversations;
  const share = report.totalBytes ? report.readBytes / report.totalBytes : null;
  return (
    <div class="report" role="status">
      {!hasEnded(report) && <Progress label={t("{count} conversations so far", { count: imported })} share={share} />}
      {report.state === "completed" && <p>{t("The import is complete.")}</p>}
      {report.state === "cancelled" && <p>{t("The import was cancelled. What had come in stays.")}</p>}
      {report.state === "failed" && <p>{t("The import failed: {reason}", { reason: report.error?.message ?? "" })}</p>}
      {hasEnded(report) && (
        <ul class="facts">
          <li>{t("{count} conversations came in, with {messages} messages.", { count: imported, messages: report.messages })}</li>
          {alreadyHere > 0 && <li>{t("{count} were here already.", { count: alreadyHere })}</li>}
          {changedSince > 0 && <li>{t("{count} are different here and were left as they are.", { count: changedSince })}</li>}
          {refused > 0 && <li>{t("{count} stayed out.", { count: refused })}</li>}
        </ul>
      )}
      {hasEnded(report) && report.left.length > 0 && (
        <details>
          <summary>{t("What stayed out, and why")}</summary>
          <ul class="facts">{report.left.map((one) => <li key={one.n} dir="auto">{one.n}: {one.message}</li>)}</ul>
        </details>
      )}
    </div>
  );
}

function Progress({ label, share }: { label: string; share: number | null }): JSX.Element {
  return (
    <p class="progress">
      <span>{label}</span>
      <progress class="meter" max={1} aria-label={label} {...(share === null ? {} : { value: share })} />
    </p>
  );
}

function Evaluation(): JSX.Element {
  const isOn = account.value?.evaluation === true;
  const change = (wanted: boolean) => attempt(async () => {
    const { evaluation } = await call<{ evaluation: boolean }>("PATCH", "/v1/me", { evaluation: wanted });
    if (account.value) account.value = { ...account.value, evaluation };
  });
  return (
    <section>
      <h3>{t("Evaluation")}</h3>
      <label class="check">
        <input type="checkbox" checked={isOn} onChange={(event) => void change(event.currentTarget.checked)} />
        <span>{t("My conversations may be used to judge models and changes. Off until you turn it on, and off again at once.")}</span>
      </label>
    </section>
  );
}

function Leaving(): JSX.Element {
  const [password, setPassword] = useState("");
  const leave = () =>
    attempt(async () => {
      await call("DELETE", "/v1/me", hasPassword.value ? { password } : {});
      forgetPerson();
      location.replace("/");
    });
  return (
    <details class="leaving">
      <summary>{t("Delete the account")}</summary>
      <p class="hint">{t("The account, every conversation and every key are deleted for good. The name stays taken.")}</p>
      <form class="row key-form" onSubmit={(event) => {
        event.preventDefault();
        void leave();
      }}>
        {hasPassword.value && <PasswordField value={password} change={setPassword} />}
        <button type="submit" class="button is-danger" disabled={hasPassword.value && password === ""}>{t("Delete for good")}</button>
      </form>
      {!hasPassword.value && <SignInAgain />}
    </details>
  );
}

/** What an account without a password proves itself with. */
function SignInAgain(): JSX.Element {
  const ways = account.value?.signIn?.providers.filter((one) => one.start !== null) ?? [];
  return (
    <p class="hint">
      {t("Your account has no password: this works within five minutes of a sign-in.")}{" "}
      {ways.map((one) => <a key={one.name} href={one.start!}>{t("Sign in again with {title}", { title: one.title })}</a>)}
    </p>
  );
}

function PasswordField({ value, change }: { value: string; change: (text: string) => void }): JSX.Element {
  return (
    <label class="field"><span class="sr">{t("Your password")}</span>
      <input type="password" autocomplete="current-password" value={value} placeholder={t("Your password")}
        onInput={(event) => change(event.currentTarget.value)} />
    </label>
  );
}

function save(file: Blob, name: string): void {
  const address = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser reads it after the click
  toast(t("The archive is complete."));
}

/** Name and password, to sign in or to make an account; above them the providers by which one may sign in. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, sentence, sentenceOf } from "../api";
import { k, t } from "../i18n";
import { announce } from "../state/announce";
import { enter, fetchWays } from "../state/session";
import type { SignInWay } from "../wire";
import { Mark } from "./icons";
import { LanguageSelect } from "./language";
import { ThemeButton } from "./theme";

const SHORTEST_PASSWORD = 10; // as the server asks for

type Way = "login" | "register";

const WORDS: Record<Way, { title: string; button: string; other: string; ask: string }> = {
  login: { title: k("Sign in"), button: k("Sign in"), ask: k("New here?"), other: k("Make an account") },
  register: { title: k("Make an account"), button: k("Make the account"), ask: k("Been here before?"), other: k("Sign in") },
};

export function SignIn({ said }: { said: string | null }): JSX.Element {
  const [way, setWay] = useState<Way>("login");
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState(said);
  const [busy, setBusy] = useState(false);
  const [providers, setProviders] = useState<readonly SignInWay[]>([]);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), [way]);
  useEffect(() => {
    // Without an answer there is the form alone, which says by itself that nothing answers.
    void fetchWays().then((ways) => setProviders(ways.providers)).catch(() => undefined);
  }, []);
  const words = WORDS[way];

  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      await enter(way, name.trim(), password);
    } catch (reason) {
      const text = wordsFor(way, reason);
      setError(text);
      announce(text);
    } finally {
      setBusy(false);
    }
  };

  return (
    <main class="sign-in">
      <div class="sign-in-theme"><LanguageSelect /><ThemeButton /></div>
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Mark talking={busy} />
        <p class="wordmark">Tertulia</p>
        <p class="tagline">{t("Good conversation, on your own machines.")}</p>
        <h1>{t(words.title)}</h1>
        {error !== null && <p class="form-error" id="form-error" role="alert">{error}</p>}
        <Providers all={providers} />
        <label class="field"><span>{t("Name")}</span>
          <input ref={first} name="username" autocomplete="username" autocapitalize="none" spellcheck={false} required maxLength={64} value={name}
            aria-describedby={error === null ? undefined : "form-error"} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label class="field"><span>{t("Password")}</span>
          <input type="password" name="password" autocomplete={way === "login" ? "current-password" : "new-password"} required maxLength={256}
            value={password} aria-describedby={error === null ? undefined : "form-error"} onInput={(event) => setPassword(event.currentTarget.value)}
            {...(way === "register" ? { minLength: SHORTEST_PASSWORD } : {})} />
          {way === "register" && <span class="hint">{t("At least {n} characters.", { n: SHORTEST_PASSWORD })}</span>}
        </label>
        <button type="submit" class="button is-main" disabled={busy || name.trim() === "" || password === ""}>{t(words.button)}</button>
        <p class="other-way">{t(words.ask)} <button type="button" class="link" onClick={() => {
          setWay(way === "login" ? "register" : "login");
          setError(null);
        }}>{t(words.other)}</button></p>
      </form>
    </main>
  );
}

/** Links and no buttons: they lead away, to the provider's own page. */
function Providers({ all }: { all: readonly SignInWay[] }): JSX.Element | null {
  if (all.length === 0) return null;
  const path = location.pathname;
  return (
    <div class="providers">
      {all.map((one) => one.start !== null && (
        <a key={one.name} class="button" href={`${one.start}?return=${encodeURIComponent(path)}`}>{t("Sign in with {title}", { title: one.title })}</a>
      ))}
      <p class="or"><span>{t("or")}</span></p>
    </div>
  );
}

function wordsFor(way: Way, reason: unknown): string {
  if (!(reason instanceof Refused)) return sentenceOf(reason);
  const { problem } = reason;
  if (way === "login" && problem.status === 401) return t("Name or password is not right.");
  if (problem.code === "name_taken") return t("This name is taken.");
  return sentence(problem);
}

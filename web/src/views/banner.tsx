/** Says how far a model is that is still on its way. */
import type { JSX } from "preact";
import { number, t } from "../i18n";
import { coming, offered, progressOf, titleOf } from "../state/models";
import type { Model } from "../wire";

export function Banner(): JSX.Element | null {
  const model = coming.value[0];
  if (model === undefined) return null;
  const share = progressOf(model);
  return (
    <div class="banner">
      <p>{words(model, share)}</p>
      {share !== null && <progress class="meter" max={1} value={share} aria-label={t("Download of the model {model}", { model: model.id })} />}
    </div>
  );
}

function words(model: Model, share: number | null): string {
  const name = titleOf(model.id);
  const other = offered.value.find((one) => (one.status?.state ?? "ready") === "ready");
  const meanwhile = other === undefined ? "" : ` ${t("{model} answers meanwhile.", { model: titleOf(other.id) })}`;
  return progressText(name, model, share) + meanwhile;
}

function progressText(name: string, model: Model, share: number | null): string {
  if (model.status?.state === "starting") return t("{model} is starting.", { model: name });
  if (share === 1) return t("{model} has been downloaded and is being unpacked.", { model: name });
  if (share === null) return t("{model} is being downloaded.", { model: name });
  const size = number((model.status?.total_bytes ?? 0) / 1e9, { maximumFractionDigits: 1 });
  return t("{model} is being downloaded: {percent} % of {size} GB.", { model: name, percent: Math.floor(share * 100), size });
}

/** Says how far a model is that is still on its way. */
import type { JSX } from "preact";
import { coming, offered, progressOf, titleOf } from "../state/models";
import type { Model } from "../wire";

export function Banner(): JSX.Element | null {
  const model = coming.value[0];
  if (model === undefined) return null;
  const share = progressOf(model);
  return (
    <div class="banner">
      <p>{words(model, share)}</p>
      {share !== null && <progress class="meter" max={1} value={share} aria-label={`Download of the ${model.id} model`} />}
    </div>
  );
}

function words(model: Model, share: number | null): string {
  const name = titleOf(model.id);
  const other = offered.value.find((one) => (one.status?.state ?? "ready") === "ready");
  const meanwhile = other === undefined ? "" : ` ${titleOf(other.id)} answers meanwhile.`;
  if (model.status?.state === "starting") return `${name} is starting.${meanwhile}`;
  if (share === 1) return `${name} has been downloaded and is being unpacked.${meanwhile}`;
  const size = model.status?.total_bytes ? ` of ${(model.status.total_bytes / 1e9).toFixed(1)} GB` : "";
  return `${name} is being downloaded${share === null ? "" : `: ${Math.floor(share * 100)} %${size}`}.${meanwhile}`;
}

/** A call of which only the failure is told, as a note. */
import { sentenceOf } from "../../api";
import { toast } from "../../state/toasts";

export async function attempt(what: () => Promise<void>): Promise<boolean> {
  try {
    await what();
    return true;
  } catch (error) {
    toast(sentenceOf(error), "bad");
    return false;
  }
}

// Compiles only if the types of clients/typescript are those of the document.
import type { ChatOptions, Decision, Event, Message, WaitingCall } from "wicketgate-client";
import type { components } from "./generated/schema.js";

type Schemas = components["schemas"];
type Published = Schemas["ChatEvent"];
type OfEvent<E extends Published["event"]> = Extract<Published, { event: E }>["data"];
type OfClient<E extends Event["event"]> = Extract<Event, { event: E }>["data"];

export const events = {
  "text-delta": (data: OfEvent<"text-delta">): OfClient<"text-delta"> => data,
  "tool-call": (data: OfEvent<"tool-call">): OfClient<"tool-call"> => data,
  "tool-result": (data: OfEvent<"tool-result">): OfClient<"tool-result"> => data,
  done: (data: OfEvent<"done">): OfClient<"done"> => data,
} satisfies { [E in Exclude<Published["event"], "error">]: (data: OfEvent<E>) => OfClient<E> };
export const message = (written: Message): Schemas["ChatMessage"] => written;
export const decision = (written: Decision): Schemas["ApprovalDecision"]["decision"] => written;
export const waiting = (read: Schemas["CallThatWaits"]): WaitingCall => read;
export const options: ChatOptions = { metadata: { trigger: "message" } satisfies Partial<Schemas["ChatMetadata"]> };

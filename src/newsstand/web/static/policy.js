// The switch: a choice and a button. Its outcome is shown beside it.

import { html, say } from "./drawing.js";

export class PolicySwitch {
  /** When the policy changed while this page looked. */
  switches = [];

  #form = document.getElementById("switch");
  #choice = document.getElementById("choice");
  #current = document.getElementById("current");
  #meaning = document.getElementById("meaning");
  #answer = document.getElementById("answer");
  #look;
  #titles = {};
  #policy = null;
  #done = null;

  constructor(look) {
    this.#look = look;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(this.#choice.value);
    });
    this.#choice.addEventListener("change", () => this.#explain());
  }

  show({ policies, policy, policy_titles: titles, elapsed_s: t }) {
    this.#titles = titles ?? {};
    const names = [...this.#choice.options].map(({ value }) => value);
    if (names.join() !== policies.join()) {
      const options = policies.map((name) => html("option", "", name));
      this.#choice.replaceChildren(...options);
      this.#choice.value = policy;
    }
    if (policy !== this.#policy) {
      // A choice that somebody is about to make stays.
      if (this.#policy === this.#choice.value || this.#policy === null) this.#choice.value = policy;
      if (this.#policy !== null) this.switches.push({ t, policy });
      this.#policy = policy;
      if (this.#done !== policy) this.#tell("");
      say(this.#current, policy);
      this.#explain();
    }
  }

  #explain() {
    say(this.#meaning, this.#titles[this.#choice.value] ?? "");
  }

  async #send(policy) {
    this.#tell("Switching …");
    try {
      const response = await fetch("policy", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ policy }),
        signal: AbortSignal.timeout(10_000),
      });
      if (response.ok) {
        this.#done = policy;
        this.#tell(`Done: all brokers use ${policy} now.`, "done");
      } else this.#tell(`Not switched: ${(await response.json()).error}`, "failed");
    } catch {
      this.#tell("Not switched: the platform does not answer.", "failed");
    }
    this.#look();
  }

  #tell(text, state = "") {
    this.#answer.dataset.state = state;
    say(this.#answer, text);
  }
}

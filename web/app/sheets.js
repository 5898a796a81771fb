// On narrow screens voice and meters are sheets over the stage, one at a time.

export class Sheets {
  constructor() {
    this.sheets = ["setup", "meters"].map((id) => ({
      panel: document.getElementById(id),
      button: document.getElementById(`open-${id}`),
    }));
    for (const sheet of this.sheets) {
      sheet.button.addEventListener("click", () => {
        const open = sheet.button.getAttribute("aria-expanded") !== "true";
        this.closeAll();
        if (open) this.set(sheet, true);
      });
    }
    document.getElementById("scroll").addEventListener("click", () => this.closeAll());
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") this.closeAll();
    });
  }

  closeAll() {
    for (const sheet of this.sheets) this.set(sheet, false);
  }

  set({ panel, button }, open) {
    panel.classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
  }
}

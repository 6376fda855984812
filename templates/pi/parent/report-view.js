// Reports in Pi's conversation.

import { textComponent } from "./host.js";
import { drawReport, REPORT_TYPE } from "./report.js";

export function registerReports(pi) {
  pi.registerMessageRenderer(REPORT_TYPE, (message, { expanded }, theme) => {
    const color = (role, text) => theme.fg(role, text);
    return textComponent(drawReport(message, { expanded, color, bold: (text) => theme.bold(text) }), 1);
  });
}

// Numbers, shares and times as people read them: what freshopt/formatting.py and freshopt/units.py write.
"use strict";

const STEPS = [["year", 365.25 * 86400], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

// A number of so many digits. JavaScript rounds ties up, and C and Python to the even digit.
function rounded(value, most) {
  const [digits, power] = value.toExponential(60).split("e");
  const sign = value < 0 ? "-" : "";
  const all = digits.replace(/[-.]/g, "");
  const even = Number(all[most - 1]) % 2 === 0 && /^50*$/.test(all.slice(most));
  return even ? Number(`${sign}${all[0]}.${all.slice(1, most)}e${power}`) : Number(value.toPrecision(most));
}

function number(value) {
  if (Math.abs(value) >= 1e3 && Math.abs(value) < 1e9) {
    return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  }
  return general(value, 4);
}

// What the format "g" of C and Python writes.
function general(value, most) {
  const tidy = rounded(value, most);
  if (tidy === 0 || (Math.abs(tidy) >= 1e-4 && Math.abs(tidy) < 10 ** most)) return String(tidy);
  const [digits, power] = tidy.toExponential().split("e");
  return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

// A share in percent; never 0 or 100 for what is only near.
function percent(share) {
  const value = 100 * share;
  const size = Math.abs(value);
  if (size >= 1000) return `${value.toLocaleString("en-US", { maximumFractionDigits: 0 })}\u00a0%`;
  const few = (size >= 0.1 && size <= 99.9) || size >= 100;
  if (few) return `${rounded(value, size < 1 ? 1 : String(Math.trunc(size)).length + 1).toFixed(1)}\u00a0%`;
  return `${size >= 0.001 || size === 0 ? Number(value.toFixed(3)) : general(value, 1)}\u00a0%`;
}

// A time, in the unit in which people would say it.
function duration(seconds) {
  const long = seconds >= 2 * STEPS[0][1];
  // What is shown as 24 hours is a day.
  const near = rounded(seconds, 3);
  const [unit, size] = STEPS.slice(long ? 0 : 1).find((step) => near >= step[1]) || STEPS[4];
  const amount = rounded(seconds / size, 3);
  const text = Number.isInteger(amount) && amount < 1e9 ? amount.toLocaleString("en-US") : number(amount);
  return `${text} ${unit}${amount === 1 ? "" : "s"}`;
}

function count(value, noun) {
  return `${value.toLocaleString("en-US")} ${noun}${value === 1 ? "" : "s"}`;
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The data of a section of the page, or null where it has none.
function dataOf(anchor) {
  const block = document.getElementById(anchor);
  return block && JSON.parse(block.textContent);
}

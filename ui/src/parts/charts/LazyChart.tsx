import { createElement, useEffect, useState, type ComponentProps } from 'react';
import { Loading } from '../States';
import type { Chart } from './Chart';

type ChartComponent = typeof Chart;

let known: ChartComponent | undefined;

async function load(): Promise<ChartComponent> {
  known = (await import('./Chart')).Chart;
  return known;
}

/** Has it on its way before it is known whether there is something to draw: the figures must be asked for first. */
export function expectCharts(): void {
  // Whoever draws one asks again, and hears of the failure.
  load().catch(() => undefined);
}

/**
 * A chart, once the code for it is there. Not by Suspense: React leaves a fallback where it is for a third of a second, even
 * if the code came long ago.
 */
export function LazyChart(props: ComponentProps<ChartComponent>) {
  const [chart, setChart] = useState(() => known);
  useEffect(() => {
    if (chart) return;
    const fail = (error: unknown) =>
      setChart(() => {
        // While drawing, so that it is shown like any other failure to draw.
        throw error;
      });
    load().then((loaded) => setChart(() => loaded), fail);
  }, [chart]);
  return chart ? createElement(chart, props) : <Loading />;
}

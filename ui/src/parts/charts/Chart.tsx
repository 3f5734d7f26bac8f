import 'uplot/dist/uPlot.min.css';
import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import { language } from '@/i18n';
import classes from './Chart.module.css';

export interface Series {
  label: string;
  values: readonly (number | null)[];
  color: string;
}

interface ChartProps {
  times: readonly number[];
  series: readonly Series[];
  format: (value: number) => string;
  /** The top of the scale, if there is one; else the largest value. */
  max?: number | undefined;
  label: string;
  /** Round numbers are powers of two. */
  binary?: boolean;
}

const powersOfTwo = Array.from({ length: 50 }, (_, exponent) => 2 ** exponent);
const height = 150;
const minute = 60;
const hour = 60 * minute;
/** How far apart the times below a chart are: they are told in minutes, so that none stands there twice. */
const timeSteps = [1, 2, 5, 10, 15, 30].map((count) => count * minute).concat([1, 2, 3, 6, 12, 24].map((count) => count * hour));

/** A few lines over time. Loaded only where there are charts. */
export function Chart({ times, series, format, max, label, binary }: ChartProps) {
  const { ref, width } = useElementSize();
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme('light');
  const data = [times, ...series.map((each) => each.values)] as unknown as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  const shape = series.map((each) => each.label).join('|');

  useEffect(() => {
    if (!host.current || width === 0) return;
    const style = getComputedStyle(host.current);
    const line = style.getPropertyValue('--croft-line');
    const quiet = style.getPropertyValue('--croft-quiet');
    const font = `11px ${style.fontFamily}`;
    const clock = new Intl.DateTimeFormat(language(), { hour: '2-digit', minute: '2-digit' });
    const options: uPlot.Options = {
      width,
      height,
      cursor: { points: { size: 6 } },
      legend: { live: true, markers: { width: 0, fill: (_plot, index) => resolved(series[index - 1]?.color ?? '', style) } },
      // Until somebody points at another moment, the legend tells the newest.
      hooks: { setLegend: [(drawn) => { if (drawn.legend.idx === null) showNewest(drawn); }] },
      scales: { y: { range: (_plot, _min, top) => [0, max ?? Math.max(top * 1.15, Number.EPSILON)] } },
      axes: [
        { stroke: quiet, grid: { show: false }, ticks: { show: false }, font, incrs: timeSteps, values: (_plot, splits) => splits.map((at) => clock.format(at * 1000)) },
        { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { show: false }, font, size: 66, values: (_plot, splits) => splits.map((value) => format(value)), ...(binary && { incrs: powersOfTwo }) },
      ],
      series: [
        { value: (_plot, at) => (at ? new Intl.DateTimeFormat(language(), { timeStyle: 'medium' }).format(at * 1000) : '–'), label: '' },
        ...series.map((each) => {
          const color = resolved(each.color, style);
          return { label: each.label, stroke: color, fill: `${color}22`, width: 1.6, points: { show: false }, value: (_plot: uPlot, value: number | null) => (value === null ? '–' : format(value)) };
        }),
      ],
    };
    plot.current = new uPlot(options, latest.current, host.current);
    showNewest(plot.current);
    return () => {
      plot.current?.destroy();
      plot.current = null;
    };
    // New values are given to the chart below; only another shape makes another chart.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [width, scheme, shape, max]);

  useEffect(() => {
    plot.current?.setData(data);
    if (plot.current?.cursor.idx === null) showNewest(plot.current);
  });

  return <div ref={ref} className={classes.chart}><div ref={host} role="img" aria-label={label} style={{ minHeight: height }} /></div>;
}

function showNewest(plot: uPlot): void {
  const newest = (plot.data[0]?.length ?? 0) - 1;
  if (newest >= 0) plot.setLegend({ idx: newest }, false);
}

function resolved(color: string, style: CSSStyleDeclaration): string {
  const name = /^var\((--[\w-]+)\)$/.exec(color)?.[1];
  return name ? style.getPropertyValue(name).trim() : color;
}

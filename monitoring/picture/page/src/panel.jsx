import { applyNullInsertThreshold, FieldType, getFieldDisplayName, reduceField, transformDataFrame } from '@grafana/data';
import { BigValue, PanelChrome, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { useEffect, useLayoutEffect, useState } from 'react';
import { configured, seriesFrames, tableFrames } from './frames.js';

export function Panel({ panel, answers, dashboard, range, theme, size }) {
  const kinds = { stat: Stat, timeseries: Graph, table: TablePanel };
  const Kind = kinds[panel.type];
  if (!Kind) {
    throw new Error(`the page draws no panel of type ${panel.type}`);
  }
  return (
    <PanelChrome title={panel.title} width={size.width} height={size.height} padding={panel.type === 'table' ? 'none' : 'md'}>
      {(width, height) => <Kind {...{ panel, answers, dashboard, range, theme, width, height }} />}
    </PanelChrome>
  );
}

function Stat({ panel, answers, theme, width, height }) {
  const frames = configured(seriesFrames(answers), panel.fieldConfig, theme);
  const field = frames[0]?.fields[1];
  const { textMode, colorMode, graphMode } = panel.options;
  const shown = { width, height, theme, colorMode, graphMode };
  if (!field) {
    const value = { text: panel.fieldConfig.defaults.noValue, numeric: NaN, color: theme.colors.text.secondary };
    return <BigValue {...shown} textMode="value" value={value} />;
  }
  const last = reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull;
  const value = { ...field.display(last), title: getFieldDisplayName(field, frames[0], frames) };
  return <BigValue {...shown} textMode={textMode} value={value} />;
}

function Graph({ panel, answers, dashboard, range, theme, width, height }) {
  const [frames] = useState(() => withGaps(configured(seriesFrames(answers), panel.fieldConfig, theme), range));
  if (!frames.length) {
    return <Nothing {...{ width, height, theme }} />;
  }
  return (
    <TimeSeries
      {...{ frames, width, height, timeRange: range, timeZone: 'utc', legend: { calcs: [], ...panel.options.legend } }}
      options={panel.options}
    >
      {(config) => <Annotations {...{ config, annotations: dashboard.annotations, theme }} />}
    </TimeSeries>
  );
}

/** A series that is absent for a while has a gap there, as in Grafana's own panel. */
function withGaps(frames, { from, to }) {
  const bounds = { refFieldPseudoMin: from.valueOf(), refFieldPseudoMax: to.valueOf() };
  return frames.map((frame) => applyNullInsertThreshold({ frame, ...bounds }));
}

/** Moments as Grafana marks them: a dashed line, a shaded region, and a tip on the time axis. */
function Annotations({ config, annotations, theme }) {
  useLayoutEffect(() => {
    config.addHook('draw', (plot) => annotations.forEach((one) => drawAnnotation(plot, one, theme)));
  }, [config, annotations, theme]);
  return null;
}

function drawAnnotation(plot, { color, regions }, theme) {
  const shade = theme.visualization.getColorByName(color);
  const { ctx, bbox } = plot;
  ctx.save();
  for (const { from, to } of regions) {
    const [left, right] = [from, to].map((at) => plot.valToPos(at * 1000, 'x', true));
    ctx.globalAlpha = 0.12;
    ctx.fillStyle = shade;
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = shade;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(left, bbox.top + bbox.height);
    ctx.lineTo(left - 5 * devicePixelRatio, bbox.top + bbox.height + 5 * devicePixelRatio);
    ctx.lineTo(left + 5 * devicePixelRatio, bbox.top + bbox.height + 5 * devicePixelRatio);
    ctx.fill();
  }
  ctx.restore();
}

function TablePanel({ panel, answers, theme, width, height }) {
  const [frame, setFrame] = useState();
  useEffect(() => {
    const subscription = transformDataFrame(panel.transformations, tableFrames(answers)).subscribe((frames) => {
      setFrame(configured(frames, panel.fieldConfig, theme)[0]);
    });
    return () => subscription.unsubscribe();
  }, [panel, answers, theme]);
  if (!frame?.length) {
    return <Nothing {...{ width, height, theme }} />;
  }
  for (const field of frame.fields) {
    field.type = field.values.some((one) => typeof one === 'number') ? FieldType.number : FieldType.string;
  }
  const fieldConfig = panel.fieldConfig;
  const { sortBy, cellHeight } = panel.options ?? {};
  return <TableNG {...{ data: frame, width, height, fieldConfig, sortBy, cellHeight, enableVirtualization: false }} />;
}

function Nothing({ width, height, theme }) {
  const style = { width, height, display: 'grid', placeContent: 'center', color: theme.colors.text.secondary };
  return <div style={style}>No data</div>;
}

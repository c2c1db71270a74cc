// From Prometheus' answers to Grafana's data frames, with the panel's field options.
import { cacheFieldDisplayNames, createDataFrame, FieldType, getDisplayProcessor } from '@grafana/data';

/** A frame of a time and a value for each series, as Grafana's Prometheus source makes them. */
export function seriesFrames(answers) {
  return answers.flatMap(({ legend, step, result }) =>
    result.map(({ metric, values, value }) => {
      const points = values ?? [value];
      return createDataFrame({
        fields: [
          { name: 'Time', type: FieldType.time, config: { interval: step * 1000 }, values: points.map(([at]) => at * 1000) },
          {
            name: 'Value',
            type: FieldType.number,
            labels: metric,
            config: { displayNameFromDS: named(legend, metric) },
            values: points.map(([, text]) => Number(text)),
          },
        ],
      });
    })
  );
}

/** A frame for each query, with a field for each label, as Grafana's Prometheus source makes them for tables. */
export function tableFrames(answers) {
  return answers.map(({ refId, result }) => {
    const labels = [...new Set(result.flatMap(({ metric }) => Object.keys(metric)))];
    const name = answers.length > 1 ? `Value #${refId}` : 'Value';
    return createDataFrame({
      refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: result.map(({ value }) => value[0] * 1000) },
        ...labels.map((label) => ({
          name: label,
          type: FieldType.string,
          values: result.map(({ metric }) => metric[label] ?? ''),
        })),
        { name, type: FieldType.number, values: result.map(({ value }) => Number(value[1])) },
      ],
    });
  });
}

/** Applies defaults and overrides, and what Grafana derives from them. */
export function configured(frames, { defaults, overrides }, theme) {
  let index = 0;
  for (const frame of frames) {
    for (const field of frame.fields) {
      const numbered = field.type === FieldType.number ? index++ : 0;
      field.state = { ...field.state, seriesIndex: numbered };
      const config = structuredClone({ ...defaults, ...field.config, custom: { ...defaults.custom } });
      if (field.type !== FieldType.number) {
        delete config.unit;
      }
      for (const { matcher, properties } of overrides) {
        if (matches(matcher, field, config.displayName ?? config.displayNameFromDS ?? field.name)) {
          properties.forEach((property) => set(config, property));
        }
      }
      field.config = config;
    }
  }
  cacheFieldDisplayNames(frames);
  for (const frame of frames) {
    for (const field of frame.fields) {
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
      field.getLinks = () => [];
    }
  }
  return frames;
}

function matches({ id, options }, field, name) {
  if (id === 'byType') {
    return options === field.type;
  }
  if (id !== 'byName') {
    throw new Error(`the page knows no matcher ${id}`);
  }
  return options === name;
}

function set(config, { id, value }) {
  if (id.startsWith('custom.')) {
    config.custom[id.slice('custom.'.length)] = value;
  } else if (id !== 'links') {
    config[id] = value;
  }
}

function named(legend, metric) {
  return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
}

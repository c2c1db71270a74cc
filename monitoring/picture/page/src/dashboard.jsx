import { dateTime } from '@grafana/data';
import { Panel } from './panel.jsx';

const CELL = 30;
const GAP = 8;

export function Dashboard({ dashboard, theme }) {
  const width = (window.innerWidth - 32 + GAP) / 24;
  const bottom = Math.max(...dashboard.panels.map(({ panel }) => panel.gridPos.y + panel.gridPos.h));
  const from = dateTime(dashboard.range.from * 1000);
  const to = dateTime(dashboard.range.to * 1000);
  const range = { from, to, raw: { from, to } };
  return (
    <>
      <Header dashboard={dashboard} range={range} theme={theme} />
      <div style={{ position: 'relative', height: bottom * (CELL + GAP) }}>
        {dashboard.panels.map((one) => {
          const { x, y, w, h } = one.panel.gridPos;
          const place = { left: x * width, top: y * (CELL + GAP), width: w * width - GAP, height: h * (CELL + GAP) - GAP };
          return (
            <div key={one.panel.id} style={{ position: 'absolute', ...place }}>
              {one.panel.type === 'row' ? (
                <Row title={one.panel.title} theme={theme} />
              ) : (
                <Panel {...one} dashboard={dashboard} range={range} theme={theme} size={place} />
              )}
            </div>
          );
        })}
      </div>
    </>
  );
}

function Row({ title, theme }) {
  return (
    <div style={{ color: theme.colors.text.primary, fontWeight: 500, fontSize: 16, lineHeight: `${CELL}px` }}>
      <span style={{ color: theme.colors.text.secondary, marginRight: 8 }}>⌄</span>
      {title}
    </div>
  );
}

function Header({ dashboard, range, theme }) {
  const box = { border: `1px solid ${theme.colors.border.medium}`, padding: '5px 10px' };
  return (
    <div style={{ display: 'flex', alignItems: 'center', gap: 8, marginBottom: 12, fontSize: 14 }}>
      <div style={{ fontSize: 18, marginRight: 16, color: theme.colors.text.primary }}>{dashboard.title}</div>
      {dashboard.variables.map(({ label, value }) => (
        <div key={label} style={{ display: 'flex' }}>
          <div style={{ ...box, borderRight: 0, color: theme.colors.text.secondary }}>{label}</div>
          <div style={{ ...box, background: theme.colors.background.primary }}>{value}</div>
        </div>
      ))}
      {dashboard.annotations.map(({ name, color }) => (
        <div key={name} style={{ ...box, border: 0, color: theme.colors.text.secondary }}>
          <span style={{ color: theme.visualization.getColorByName(color), marginRight: 6 }}>▲</span>
          {name}
        </div>
      ))}
      <div style={{ ...box, marginLeft: 'auto', color: theme.colors.text.secondary }}>
        {range.from.utc().format('HH:mm:ss')} to {range.to.utc().format('HH:mm:ss')} UTC
      </div>
    </div>
  );
}

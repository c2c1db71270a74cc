// Draws one dashboard, `window.DASHBOARD`, as `monitoring/picture/answers.py` writes it.
import '@fontsource-variable/inter';
import { createTheme, standardTransformers, standardTransformersRegistry, ThemeContext } from '@grafana/data';
import { GlobalStyles } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { Dashboard } from './dashboard.jsx';
import './page.css';

const theme = createTheme({ colors: { mode: 'dark' } });

const { mergeTransformer, organizeFieldsTransformer } = standardTransformers;

standardTransformersRegistry.setInit(() =>
  [mergeTransformer, organizeFieldsTransformer].map((transformation) => ({
    id: transformation.id,
    name: transformation.name,
    transformation: async () => transformation,
    editor: () => null,
  }))
);

createRoot(document.getElementById('page')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles hackNoBackdropBlur={true} />
    <Dashboard dashboard={window.DASHBOARD} theme={theme} />
  </ThemeContext.Provider>
);

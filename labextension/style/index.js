import './explorer.css';
import './index.css';

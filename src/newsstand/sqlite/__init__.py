"""SQLite: connections, migrations, pools and group commit."""

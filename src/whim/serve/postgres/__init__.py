"""The log in PostgreSQL, shared by any number of replicas; nothing else imports ``psycopg``."""

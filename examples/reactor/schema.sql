-- What the reactors know. Everybody may read it; all writes but a new run are guarded by a lease.
CREATE SCHEMA reactor;

-- A piece of work. owner and token tell who took it on, and under which term of its reactor's lease.
CREATE TABLE reactor.run (
  id      text PRIMARY KEY,
  reactor text NOT NULL,
  account text NOT NULL,
  amount  bigint NOT NULL CHECK (amount > 0),
  done    boolean NOT NULL DEFAULT false,
  owner   text,
  token   bigint
);

-- Who does what, and until when, unless a heartbeat moves that, its lease lasts: for people.
CREATE VIEW reactor.status AS
  SELECT run.*, clock_timestamp() + left_ms * interval '1 millisecond' AS expires
  FROM reactor.run LEFT JOIN holdfast.record
    ON name = 'reactor/' || reactor AND rev = token AND left_ms > 0 AND NOT done;

-- What has happened in a run, in order. A successor goes through it from the first event.
CREATE TABLE reactor.event (
  run   text NOT NULL REFERENCES reactor.run,
  seq   int NOT NULL,
  name  text NOT NULL,
  token bigint NOT NULL,
  PRIMARY KEY (run, seq)
);

-- What a run does outside of this database: pending before it is done, confirmed with what came of it.
CREATE TABLE reactor.effect (
  key       text PRIMARY KEY,
  run       text NOT NULL REFERENCES reactor.run,
  confirmed boolean NOT NULL DEFAULT false,
  result    text
);

-- Messages that are to be sent at least once, written with what they tell of.
CREATE TABLE reactor.outbox (
  run  text PRIMARY KEY REFERENCES reactor.run,
  body text NOT NULL,
  sent boolean NOT NULL DEFAULT false
);

-- Balances of customers: of this database, so they change in the guarded transaction itself.
CREATE TABLE reactor.account (
  id      text PRIMARY KEY,
  balance bigint NOT NULL CHECK (balance >= 0)
);

-- The bank of another company: it knows no lease, but pays once for each key.
CREATE SCHEMA bank;
CREATE TABLE bank.payment (key text PRIMARY KEY, amount bigint NOT NULL);
CREATE TABLE bank.request (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL);

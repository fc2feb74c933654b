"""Why pairs were missed, in plain SQL, by the rules for causes in docs/capture.md.

The tables that it makes: `path`, with what became of each path; and `missed`, with the cause of each pair
that was not delivered.
"""

RANKED = (
    *("unsent", "view", "draw", "unasked", "down", "loss-in", "unvouched", "untapped", "send-error"),
    *("overflow-in", "network-in", "lease-never", "lease-restart", "lease-expired", "down-out", "loss-out"),
    *("overflow-out", "network-out", "halted", "late", "delivered"),
)
_CAUSES = ", ".join(f"({rank}, '{cause}')" for rank, cause in enumerate(RANKED))

# What is known of servers and clients at a time.
_AROUND = f"""
CREATE TABLE causes AS SELECT * FROM (VALUES {_CAUSES}) AS ranked(rank, cause);
CREATE MACRO rank_of(name) AS (SELECT rank FROM causes WHERE cause = name);
CREATE MACRO edge() AS 20_000_000::BIGINT;
CREATE MACRO second() AS 1_000_000_000::BIGINT;

-- Times at which a server was killed or halted, and those at which it was halted.
CREATE TABLE down AS
WITH killed AS (
  SELECT *, (SELECT max(t_to_ns) FROM server_life WHERE server_life.server_id = outage.server_id
             AND ended = 0 AND t_to_ns <= t_down_ns + edge()) AS last_ns
  FROM outage WHERE kind IN ('kill', 'stall')
)
SELECT server_id, t_up_ns + edge() AS to_ns, CASE
    WHEN last_ns IS NULL THEN t_down_ns - edge()
    ELSE least(t_down_ns - edge(), greatest(last_ns, t_down_ns - 3 * second() // 2))
  END AS from_ns
FROM killed;
CREATE TABLE halted AS
SELECT server_id, t_down_ns - edge() AS from_ns, t_up_ns + edge() AS to_ns FROM outage WHERE kind = 'stall';

-- Times at which a counter may have risen.
CREATE TABLE rose AS
WITH counter AS (
  SELECT 'send-error' AS what, pub_id AS who, client_stat.t_ns AS at_ns, send_errors AS count
  FROM client_stat JOIN member USING (client_id) WHERE pub_id >= 0
  UNION ALL SELECT 'overflow-out', sub_id, client_stat.t_ns, kernel_drops
  FROM client_stat JOIN member USING (client_id) WHERE sub_id >= 0
  UNION ALL SELECT 'overflow-in', server_id, t_ns, kernel_drops FROM server_stat
), read AS (
  SELECT *, coalesce(lag(count) OVER by_time, 0) AS before,
    coalesce(lag(at_ns) OVER by_time, at_ns - second()) AS since_ns
  FROM counter WINDOW by_time AS (PARTITION BY what, who ORDER BY at_ns, count)
)
SELECT what, who, since_ns - second() AS from_ns, at_ns + second() AS to_ns
FROM read WHERE count > before OR (count < before AND count > 0);

-- The servers that each client knew; all, where that is not recorded.
CREATE TABLE pub_view AS
SELECT pub_id, coalesce(
  (SELECT arg_min(list_sort(list_distinct(m.servers)), (m.t_ns, m.client_id)) FROM member m
   WHERE m.pub_id = ids.pub_id), range(given.servers)) AS knows
FROM (SELECT DISTINCT pub_id FROM pair) AS ids, given;
CREATE TABLE sub_view AS
SELECT sub_id, coalesce(
  (SELECT arg_min(list_sort(list_distinct(m.servers)), (m.t_ns, m.client_id)) FROM member m
   WHERE m.sub_id = ids.sub_id), range(given.servers)) AS knows
FROM (SELECT DISTINCT sub_id FROM pair) AS ids, given;

CREATE TABLE life AS
SELECT server_id, boot_id, t_from_ns,
  t_from_ns > min(t_from_ns) OVER (PARTITION BY server_id) AS is_later,
  coalesce(lead(t_from_ns) OVER (PARTITION BY server_id ORDER BY t_from_ns, boot_id), 9e18::BIGINT) AS next_ns
FROM server_life;
"""

# How far messages came at servers, for all subscribers alike.
_AT_SERVERS = """
CREATE TABLE tx AS
SELECT pub_tx.msg_id, publish.pub_id, server_id, t_tx_ns, injected
FROM pub_tx JOIN publish USING (msg_id) WHERE server_id >= 0;

-- What servers took in; and what they forwarded, and so had, although no record of theirs says so.
CREATE TABLE taken AS
SELECT msg_id, server_id, boot_id, pub_id, t_rx_ns FROM server_rx
UNION ALL
SELECT came.msg_id, came.server_id, boot_id, pub_id, at_ns
FROM (SELECT msg_id, server_id, min(t_user_ns) AS at_ns FROM deliver GROUP BY ALL) AS came
SEMI JOIN tx USING (msg_id, server_id) ANTI JOIN server_rx USING (msg_id, server_id)
JOIN publish USING (msg_id)
JOIN life ON life.server_id = came.server_id AND t_from_ns <= at_ns AND at_ns < next_ns;

CREATE TABLE at_server AS
SELECT msg_id, server_id, max(at_ns) AS last_ns, bool_or(had) AS had
FROM (
  SELECT msg_id, server_id, t_tx_ns AS at_ns, false AS had FROM tx
  UNION ALL SELECT msg_id, server_id, t_rx_ns, true FROM taken SEMI JOIN publish USING (msg_id)
) GROUP BY ALL;

CREATE TABLE way_in AS
SELECT msg_id, server_id, max(rank_of(
  CASE
    WHEN injected = 1 THEN 'loss-in'
    WHEN injected = 2 THEN 'down'
    WHEN EXISTS (FROM down WHERE down.server_id = tx.server_id AND t_tx_ns BETWEEN from_ns AND to_ns)
      THEN 'down'
    WHEN NOT EXISTS (FROM life WHERE life.server_id = tx.server_id) THEN 'untapped'
    WHEN EXISTS (
      FROM life
      WHERE life.server_id = tx.server_id AND is_later AND t_from_ns <= t_tx_ns AND t_tx_ns < next_ns
        AND NOT EXISTS (FROM taken WHERE taken.boot_id = life.boot_id AND taken.pub_id = tx.pub_id
                        AND t_rx_ns <= t_tx_ns)) THEN 'unvouched'
    WHEN EXISTS (FROM rose WHERE what = 'send-error' AND who = tx.pub_id
                 AND t_tx_ns BETWEEN from_ns AND to_ns) THEN 'send-error'
    WHEN EXISTS (FROM rose WHERE what = 'overflow-in' AND who = tx.server_id
                 AND t_tx_ns BETWEEN from_ns AND to_ns) THEN 'overflow-in'
    ELSE 'network-in'
  END)) AS rank
FROM tx GROUP BY ALL;
"""

# The paths of each pair, those first that it has in common with the message.
_PATHS = """
CREATE TABLE came AS
WITH brought AS (
  SELECT msg_id, sub_id, server_id, t_intended_ns, bool_or(injected = 1) AS was_lost,
    min(t_user_ns) FILTER (WHERE injected IN (0, 3)) AS first_ns
  FROM pair JOIN deliver USING (msg_id, sub_id) WHERE server_id >= 0 GROUP BY ALL
)
SELECT msg_id, sub_id, server_id, rank_of(
  CASE
    WHEN first_ns - t_intended_ns <= deadline_ns THEN 'delivered'
    WHEN first_ns IS NULL AND was_lost THEN 'loss-out'
    WHEN first_ns IS NULL THEN 'down-out'
    WHEN EXISTS (FROM halted WHERE halted.server_id = brought.server_id
                 AND from_ns <= first_ns AND t_intended_ns <= to_ns) THEN 'halted'
    ELSE 'late'
  END) AS rank
FROM brought, given;

CREATE TABLE asked AS
SELECT sub_id, topic_id, server_id, min(t_tx_ns) AS first_ns FROM subscribe WHERE server_id >= 0 GROUP BY ALL;

CREATE TABLE way AS
SELECT pair.msg_id, pair.sub_id, pair.topic_id, pair.pub_id, at_server.server_id, had, last_ns,
  came.rank IS NOT NULL OR coalesce(first_ns <= last_ns, false) AS is_common, came.rank AS rank_of_copies
FROM pair JOIN at_server USING (msg_id)
LEFT JOIN asked ON asked.sub_id = pair.sub_id AND asked.topic_id = pair.topic_id
  AND asked.server_id = at_server.server_id
LEFT JOIN came ON came.msg_id = pair.msg_id AND came.sub_id = pair.sub_id
  AND came.server_id = at_server.server_id;

-- Servers that had the message, and no copy tells of it: whether a lease stood then.
CREATE TABLE beyond AS
WITH met AS (
  SELECT msg_id, sub_id, way.topic_id, server_id, boot_id, t_rx_ns
  FROM way JOIN taken USING (msg_id, server_id) WHERE is_common AND had AND rank_of_copies IS NULL
), state AS (
  SELECT met.msg_id, met.sub_id, met.topic_id, met.server_id, met.t_rx_ns,
    arg_max(change IN (1, 4), (lease.t_ns, change IN (1, 4))) FILTER (WHERE lease.boot_id = met.boot_id)
      AS stood,
    coalesce(bool_or(change IN (1, 4)), false) AS had_begun
  FROM met LEFT JOIN lease
  ON lease.server_id = met.server_id AND lease.sub_id = met.sub_id AND lease.topic_id = met.topic_id
    AND lease.t_ns + if(change IN (1, 4), 1, 0) <= met.t_rx_ns
  GROUP BY ALL
)
SELECT msg_id, sub_id, server_id, max(rank_of(
  CASE
    WHEN stood AND EXISTS (FROM down WHERE down.server_id = state.server_id
                           AND t_rx_ns BETWEEN from_ns AND to_ns) THEN 'down-out'
    WHEN stood AND EXISTS (FROM rose WHERE what = 'overflow-out' AND who = state.sub_id
                           AND t_rx_ns BETWEEN from_ns AND to_ns) THEN 'overflow-out'
    WHEN stood THEN 'network-out'
    WHEN avoid_dead AND given.subscribe < k AND NOT EXISTS (
      FROM subscribe s WHERE s.sub_id = state.sub_id AND s.topic_id = state.topic_id
        AND s.server_id = state.server_id AND t_tx_ns BETWEEN t_rx_ns - ttl_ns AND t_rx_ns) THEN 'draw'
    WHEN stood IS NOT NULL THEN 'lease-expired'
    WHEN had_begun THEN 'lease-restart'
    ELSE 'lease-never'
  END)) AS rank
FROM state, given GROUP BY ALL;

CREATE TABLE ranked AS
SELECT way.msg_id, way.sub_id, way.server_id, true AS is_common,
  CASE
    WHEN rank_of_copies IS NOT NULL THEN rank_of_copies
    WHEN had THEN beyond.rank
    WHEN way_in.rank = rank_of('untapped') AND EXISTS (
      FROM rose WHERE what = 'overflow-out' AND who = way.sub_id AND last_ns BETWEEN from_ns AND to_ns)
      THEN rank_of('overflow-out')
    ELSE way_in.rank
  END AS rank
FROM way LEFT JOIN beyond USING (msg_id, sub_id, server_id) LEFT JOIN way_in USING (msg_id, server_id)
WHERE is_common
UNION ALL
SELECT msg_id, sub_id, server_id, false, rank_of(
  CASE
    WHEN NOT list_contains(sub_view.knows, server_id) THEN 'view'
    WHEN given.subscribe < k THEN 'draw'
    WHEN sub_view.knows <> pub_view.knows THEN 'view'
    ELSE 'unasked'
  END)
FROM way JOIN sub_view USING (sub_id) JOIN pub_view USING (pub_id), given WHERE NOT is_common
UNION ALL
SELECT msg_id, sub_id, server_id, false, rank_of(
  CASE
    WHEN NOT list_contains(pub_view.knows, server_id) THEN 'view'
    WHEN given.publish < k THEN 'draw'
    WHEN sub_view.knows <> pub_view.knows THEN 'view'
    ELSE 'unsent'
  END)
FROM pair JOIN asked USING (sub_id, topic_id) ANTI JOIN at_server USING (msg_id, server_id)
JOIN sub_view USING (sub_id) JOIN pub_view USING (pub_id), given;

CREATE TABLE path AS
SELECT msg_id, sub_id, server_id, is_common, rank, cause FROM ranked JOIN causes USING (rank);
"""

# Pairs that were missed, each with one cause.
_MISSED = """
CREATE TABLE missed AS
WITH furthest AS (
  SELECT msg_id, sub_id, max(rank) FILTER (WHERE is_common) AS common, max(rank) AS any_path
  FROM outcome LEFT JOIN path USING (msg_id, sub_id) WHERE NOT delivered GROUP BY msg_id, sub_id
)
SELECT msg_id, sub_id, causes.cause
FROM furthest JOIN pair USING (msg_id, sub_id) JOIN sub_view USING (sub_id) JOIN pub_view USING (pub_id)
LEFT JOIN (SELECT msg_id, count(*) AS sent_to FROM at_server GROUP BY 1) USING (msg_id), given, causes
WHERE causes.rank = CASE
  WHEN common IS NOT NULL THEN common
  WHEN sent_to IS NULL THEN rank_of('unsent')
  WHEN given.publish + given.subscribe <= k THEN any_path
  WHEN sub_view.knows <> pub_view.knows THEN rank_of('view')
  WHEN sent_to < least(given.publish, len(pub_view.knows)) THEN rank_of('unsent')
  ELSE rank_of('unasked')
END;
"""

STATEMENTS = _AROUND + _AT_SERVERS + _PATHS + _MISSED

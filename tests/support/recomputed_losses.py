"""What the network lost though nobody asked for it, in plain SQL, by the rules in docs/capture.md.

The table that it makes is `leg_line`: each line that only the network can have lost, and whether it did.
"""

STATEMENTS = """
-- Messages at servers that they were sent to once, past all that the test or a socket may have done.
CREATE TABLE once AS
SELECT tx.msg_id, tx.server_id,
  CASE
    WHEN had THEN 'came'
    WHEN way_in.rank = rank_of('network-in') THEN 'lost'
    WHEN way_in.rank = rank_of('untapped') THEN 'untapped'
  END AS fate
FROM tx JOIN at_server USING (msg_id, server_id) JOIN way_in USING (msg_id, server_id)
WHERE injected = 0
  AND (SELECT count(*) FROM tx AS t WHERE t.msg_id = tx.msg_id AND t.server_id = tx.server_id) = 1
  AND NOT EXISTS (FROM down WHERE down.server_id = tx.server_id AND t_tx_ns BETWEEN from_ns AND to_ns)
  AND NOT EXISTS (FROM rose WHERE what = 'send-error' AND who = tx.pub_id
                  AND t_tx_ns BETWEEN from_ns AND to_ns)
  AND NOT EXISTS (FROM rose WHERE what = 'overflow-in' AND who = tx.server_id
                  AND t_tx_ns BETWEEN from_ns AND to_ns);

CREATE TABLE on_network AS
SELECT way.msg_id, way.sub_id, way.server_id, fate, rank_of_copies IS NOT NULL AS has_copy,
  count(*) OVER at_one AS asked, count(*) FILTER (WHERE rank_of_copies IS NOT NULL) OVER at_one AS came
FROM way JOIN once USING (msg_id, server_id) JOIN path USING (msg_id, sub_id, server_id)
WHERE path.is_common AND fate IS NOT NULL
  AND (rank_of_copies IS NOT NULL OR cause IN ('untapped', 'network-in', 'network-out'))
  AND NOT EXISTS (FROM rose WHERE what = 'overflow-out' AND who = way.sub_id
                  AND last_ns BETWEEN from_ns AND to_ns)
WINDOW at_one AS (PARTITION BY way.msg_id, way.server_id);

CREATE TABLE leg_line AS
SELECT 'in' AS leg, msg_id, server_id, -1 AS sub_id, fate = 'lost' AS is_lost FROM once
WHERE fate IN ('came', 'lost')
UNION ALL SELECT DISTINCT 'in', msg_id, server_id, -1, came = 0 FROM on_network
WHERE fate = 'untapped' AND asked >= 2
UNION ALL SELECT 'out', msg_id, server_id, sub_id, NOT has_copy FROM on_network
WHERE fate = 'came' OR (fate = 'untapped' AND came > CAST(has_copy AS INTEGER))
UNION ALL SELECT 'both', msg_id, server_id, sub_id, NOT has_copy FROM on_network;

-- Without copies that tell of the way out, nothing tells of the way in.
DELETE FROM leg_line WHERE leg = 'in' AND NOT EXISTS (FROM leg_line WHERE leg = 'out')
  AND EXISTS (FROM on_network WHERE fate = 'untapped' AND asked >= 2);

CREATE TABLE leg_loss AS
WITH placed AS (
  SELECT *, lag(is_lost) OVER (
      PARTITION BY leg, sub_id, server_id, msg_id >> 32, (msg_id & 4294967295) // 64 ORDER BY msg_id
    ) AS follows_lost,
    count(*) OVER of_message - 1 AS besides,
    count(*) FILTER (WHERE is_lost) OVER of_message - 1 AS besides_lost
  FROM leg_line WINDOW of_message AS (PARTITION BY leg, msg_id, sub_id)
)
SELECT leg, count(placed.leg) AS lines, count(*) FILTER (WHERE is_lost) AS lost,
  lost / nullif(lines, 0) AS plain,
  count(*) FILTER (WHERE follows_lost) AS after,
  count(*) FILTER (WHERE follows_lost AND is_lost) AS after_lost,
  coalesce(sum(besides) FILTER (WHERE is_lost), 0) AS others,
  coalesce(sum(besides_lost) FILTER (WHERE is_lost), 0) AS others_lost
FROM (VALUES (0, 'in'), (1, 'out'), (2, 'both')) AS every(place, leg) LEFT JOIN placed USING (leg)
GROUP BY leg, place ORDER BY place;
"""

FIGURES = """
WITH unseen AS (  -- messages that came in without a tap, and of which all copies were lost, as a share
  SELECT coalesce(sum(power((SELECT plain FROM leg_loss WHERE leg = 'out'), asked)), 0)
    / (SELECT nullif(lines, 0) FROM leg_loss WHERE leg = 'in') AS s
  FROM (SELECT DISTINCT msg_id, server_id, asked FROM on_network WHERE fate = 'untapped' AND asked >= 2)
), way_there AS (
  SELECT if(s < 1, greatest(0, (plain - s) / (1 - s)), 0) AS share FROM leg_loss, unseen WHERE leg = 'in'
)
SELECT leg, lines, lost, after, after_lost, others, others_lost,
  CASE
    WHEN lines = 0 THEN NULL
    WHEN leg = 'in' THEN way_there.share
    WHEN leg = 'out' OR way_there.share IS NULL
      OR (SELECT lines FROM leg_loss WHERE leg = 'out') = 0 THEN plain
    ELSE 1 - (1 - way_there.share) * (1 - (SELECT plain FROM leg_loss WHERE leg = 'out'))
  END AS share,
  after_lost / nullif(after, 0) AS after_share, others_lost / nullif(others, 0) AS others_share
FROM leg_loss, way_there"""

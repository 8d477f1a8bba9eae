-- name: PriceAt :one
SELECT id, rate_minor_per_hour, lower(valid)::timestamptz AS valid_from FROM prices WHERE item = @item AND currency = @currency AND valid @> @at::timestamptz;

-- name: LastPrice :one
-- The price that nothing follows yet, locked.
SELECT id, rate_minor_per_hour, lower(valid)::timestamptz AS valid_from FROM prices
WHERE item = @item AND currency = @currency AND upper_inf(valid) FOR UPDATE;

-- name: LockSKU :one
SELECT id FROM skus WHERE id = @id FOR NO KEY UPDATE;

-- name: ClosePrice :execrows
UPDATE prices SET valid = tstzrange(lower(valid), @until::timestamptz) WHERE id = @id AND upper_inf(valid);

-- name: InsertPrice :one
INSERT INTO prices (id, sku_id, instance_type, currency, rate_minor_per_hour, valid, set_by)
VALUES (@id, nullif(@sku_id::text, ''), nullif(@instance_type::text, ''), @currency, @rate_minor_per_hour, tstzrange(@valid_from::timestamptz, NULL), @set_by)
RETURNING id, lower(valid)::timestamptz AS valid_from, set_by, created_at;

-- name: PriceByID :one
SELECT coalesce(sku_id, '')::text AS sku_id, coalesce(instance_type, '')::text AS instance_type, currency, rate_minor_per_hour,
    lower(valid)::timestamptz AS valid_from, set_by, created_at FROM prices WHERE id = @id;

-- name: DeletePrice :execrows
-- The trigger prices_reopen has the price before valid without end again.
DELETE FROM prices WHERE id = @id;

-- name: ListPrices :many
SELECT id, coalesce(sku_id, '')::text AS sku_id, coalesce(instance_type, '')::text AS instance_type, currency, rate_minor_per_hour,
    lower(valid)::timestamptz AS valid_from, coalesce(upper(valid), lower(valid))::timestamptz AS valid_until,
    upper_inf(valid)::boolean AS open, set_by, created_at
FROM prices WHERE (@item::text = '' OR item = @item::text) AND (@currency::text = '' OR currency = @currency::text) AND id > @after::text
ORDER BY id LIMIT @max_rows;

-- name: AnyPrice :one
-- A price that begins later charges nothing yet.
SELECT EXISTS (SELECT FROM prices WHERE lower(valid) <= now())::boolean AS charging;

-- name: AffectedByItem :many
-- The usage records that a price of an item and currency touches: those that run or wait. An instance of a
-- depleted account ends once its type has a price that has begun; these come first.
SELECT coalesce(r.allocation_id, '')::text AS allocation_id, coalesce(r.instance_id, '')::text AS instance_id, r.project_id, r.billing_account_id, r.start_time, s.rate_minor_per_hour,
    (r.instance_id IS NOT NULL AND coalesce(b.state = 'depleted' AND b.depletions > 0, false))::boolean AS ends
FROM usage_records r LEFT JOIN usage_segments s ON s.project_id = r.project_id AND s.record_id = r.id AND s.ended_at IS NULL
LEFT JOIN account_balances b ON b.billing_account_id = r.billing_account_id
WHERE r.item = @item AND r.currency = @currency AND r.closed_at IS NULL AND r.end_time IS NULL ORDER BY ends DESC, r.id LIMIT @max_rows;

-- name: RatesNow :many
-- What items cost now, in the currencies given; none stands for all.
SELECT p.item::text AS item, p.currency, x.exponent, p.rate_minor_per_hour FROM prices p JOIN currencies x ON x.code = p.currency
WHERE p.item = ANY (@items::text[]) AND p.valid @> clock_timestamp() AND (cardinality(@currencies::text[]) = 0 OR p.currency = ANY (@currencies::text[]))
ORDER BY p.item, p.currency;

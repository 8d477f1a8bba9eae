package stripesim

import (
	"maps"
	"time"
)

// unix renders a time as Stripe does; the zero time is null.
func unix(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Unix()
}

// orNull renders an empty text as null.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func texts(m map[string]string) object {
	out := object{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func emptyAddress() object {
	return object{"city": nil, "country": nil, "line1": nil, "line2": nil, "postal_code": nil, "state": nil}
}

func (s *Server) sessionObject(c *session) object {
	amount := c.amount
	out := object{
		"id": c.id, "object": "checkout.session", "after_expiration": nil, "allow_promotion_codes": nil, "amount_subtotal": amount,
		"amount_total": amount, "adaptive_pricing": nil, "billing_address_collection": nil, "cancel_url": orNull(c.cancelURL),
		"automatic_tax":       object{"enabled": c.automaticTax, "liability": nil, "provider": nil, "status": nil},
		"client_reference_id": orNull(c.reference), "client_secret": nil, "collected_information": nil, "consent": nil,
		"consent_collection": nil, "created": c.created.Unix(), "currency": c.currency, "currency_conversion": nil, "custom_fields": []any{},
		"custom_text": object{"after_submit": nil, "shipping_address": nil, "submit": nil, "terms_of_service_acceptance": nil},
		"customer":    nil, "customer_account": nil, "customer_creation": orNull(c.customerCreates), "customer_details": nil,
		"customer_email": orNull(c.email), "discounts": []any{}, "expires_at": c.expires.Unix(), "integration_identifier": nil, "invoice": nil,
		"invoice_creation": object{"enabled": false, "invoice_data": object{
			"account_tax_ids": nil, "custom_fields": nil, "description": nil, "footer": nil, "issuer": nil, "metadata": object{}, "rendering_options": nil,
		}},
		"livemode": s.live, "locale": orNull(c.locale), "managed_payments": nil, "metadata": texts(c.metadata), "mode": "payment",
		"origin_context": nil, "payment_intent": nil, "payment_link": nil, "payment_method_collection": "if_required",
		"payment_method_configuration_details": nil, "payment_method_options": object{}, "payment_method_types": c.methods,
		"payment_status": c.paymentStatus, "permissions": nil, "phone_number_collection": object{"enabled": false}, "recovered_from": nil,
		"saved_payment_method_options": nil, "setup_intent": nil, "shipping_address_collection": nil, "shipping_cost": nil,
		"shipping_options": []any{}, "status": c.status, "submit_type": orNull(c.submitType), "subscription": nil, "success_url": orNull(c.successURL),
		"total_details": object{"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0}, "ui_mode": "hosted_page", "url": nil,
		"wallet_options": nil,
	}
	if c.adaptivePricing != nil {
		out["adaptive_pricing"] = object{"enabled": *c.adaptivePricing}
	}
	if c.promotionCodes != nil {
		out["allow_promotion_codes"] = *c.promotionCodes
	}
	if c.status == statusOpen {
		out["url"] = s.publicURL + "/c/pay/" + c.id
	}
	if c.intent != nil {
		out["payment_intent"] = c.intent.id
	}
	if c.status == statusComplete {
		out["customer_details"] = object{
			"address": emptyAddress(), "business_name": nil, "email": payerEmail(c.email), "individual_name": nil, "name": nil, "phone": nil,
			"tax_exempt": "none", "tax_ids": []any{},
		}
	}
	return out
}

func payerEmail(email string) string {
	if email == "" {
		return "payer@example.com"
	}
	return email
}

func (s *Server) intentObject(p *intent) object {
	out := object{
		"id": p.id, "object": "payment_intent", "allowed_payment_method_types": nil, "amount": p.amount, "amount_capturable": 0,
		"amount_details": object{"tip": object{}}, "amount_received": p.received, "application": nil, "application_fee_amount": nil,
		"automatic_payment_methods": nil, "canceled_at": unix(p.canceled), "cancellation_reason": nil, "capture_method": "automatic_async",
		"client_secret": p.id + "_secret_" + p.secret, "confirmation_method": "automatic", "created": p.created.Unix(), "currency": p.currency,
		"customer": nil, "customer_account": nil, "description": nil, "excluded_payment_method_types": nil, "last_payment_error": nil,
		"latest_charge": nil, "livemode": s.live, "managed_payments": nil, "metadata": texts(p.metadata), "next_action": nil, "on_behalf_of": nil,
		"payment_method": nil, "payment_method_configuration_details": nil, "payment_method_options": object{}, "payment_method_types": p.methods,
		"processing": nil, "receipt_email": nil, "review": nil, "setup_future_usage": nil, "shipping": nil, "source": nil,
		"statement_descriptor": nil, "statement_descriptor_suffix": nil, "status": p.status, "transfer_data": nil, "transfer_group": nil,
	}
	if p.charge != nil {
		out["latest_charge"] = p.charge.id
	}
	if p.declined {
		out["last_payment_error"] = object{
			"type": "card_error", "code": "card_declined", "decline_code": "generic_decline", "message": "Your card was declined.",
			"doc_url": "https://stripe.com/docs/error-codes/card-declined",
		}
	}
	if p.status == "canceled" {
		out["cancellation_reason"] = "automatic"
	}
	return out
}

func (s *Server) chargeObject(c *charge) object {
	out := object{
		"id": c.id, "object": "charge", "amount": c.amount, "amount_captured": 0, "amount_refunded": c.refunded, "application": nil,
		"application_fee": nil, "application_fee_amount": nil, "balance_transaction": nil,
		"billing_details": object{
			"address": emptyAddress(), "email": payerEmail(c.email), "name": nil, "phone": nil, "tax_id": nil,
		},
		"calculated_statement_descriptor": "SIMULATED", "captured": c.status == statusSucceeded, "created": c.created.Unix(), "currency": c.currency,
		"customer": nil, "description": nil, "disputed": c.disputed, "failure_balance_transaction": nil, "failure_code": nil,
		"failure_message": nil, "fraud_details": object{}, "livemode": s.live, "metadata": texts(c.intent.metadata), "on_behalf_of": nil,
		"outcome": nil, "paid": c.status != statusFailed, "payment_intent": c.intent.id, "payment_method": nil,
		"payment_method_details": object{"type": c.method, c.method: object{}}, "receipt_email": nil, "receipt_number": nil, "receipt_url": nil,
		"refunded": c.refunded == c.amount && c.amount > 0, "refunds": nil, "review": nil, "shipping": nil, "source": nil, "source_transfer": nil,
		"statement_descriptor": nil, "statement_descriptor_suffix": nil, "status": c.status, "transfer_data": nil, "transfer_group": nil,
	}
	delete(out, "refunds") // is there only where a client expands it
	switch c.status {
	case statusSucceeded:
		out["amount_captured"] = c.amount
		out["balance_transaction"] = c.movement.id
	case statusFailed:
		out["failure_code"], out["failure_message"] = "card_declined", "Your card was declined."
	}
	if c.method == methodCard {
		out["payment_method_details"] = object{"type": methodCard, methodCard: cardDetails(c.amount)}
	}
	return out
}

func cardDetails(amount int64) object {
	return object{
		"amount_authorized": amount, "authorization_code": nil, "brand": "visa", "country": "US", "exp_month": 12, "exp_year": 2034,
		"checks":  object{"address_line1_check": nil, "address_postal_code_check": nil, "cvc_check": "pass"},
		"funding": "credit", "installments": nil, "last4": "4242", "mandate": nil, "network": "visa", "network_transaction_id": nil,
		"regulated_status": "unregulated", "three_d_secure": nil, "transaction_link_id": nil, "wallet": nil,
	}
}

func (s *Server) refundObject(r *refund) object {
	out := object{
		"id": r.id, "object": "refund", "amount": r.amount, "balance_transaction": r.movement.id, "charge": r.charge.id,
		"created": r.created.Unix(), "currency": r.charge.currency, "customer": nil, "customer_account": nil, "metadata": texts(r.metadata),
		"payment_intent": r.charge.intent.id, "payment_method": nil, "reason": orNull(r.reason), "receipt_number": nil,
		"source_transfer_reversal": nil, "status": r.status, "transfer_reversal": nil,
		"destination_details": object{"type": r.charge.method, r.charge.method: object{}},
	}
	if r.charge.method == methodCard {
		out["destination_details"] = object{"type": methodCard, methodCard: object{"type": "refund"}}
	}
	if r.failure != nil {
		out["failure_balance_transaction"], out["failure_reason"] = r.failure.id, "expired_or_canceled_card"
	}
	return out
}

func (s *Server) disputeObject(d *dispute) object {
	evidence := object{"enhanced_evidence": object{}}
	for _, name := range disputeEvidence() {
		evidence[name] = nil
	}
	moves := []any{}
	for _, m := range d.movements {
		moves = append(moves, s.movementObject(m))
	}
	return object{
		"id": d.id, "object": "dispute", "amount": d.amount, "balance_transactions": moves, "charge": d.charge.id, "created": d.created.Unix(),
		"currency": d.charge.currency, "enhanced_eligibility_types": []any{}, "evidence": evidence,
		"evidence_details": object{
			"due_by": d.created.Add(7 * 24 * time.Hour).Unix(), "enhanced_eligibility": object{}, "has_evidence": false, "past_due": false,
			"submission_count": 0,
		},
		"is_charge_refundable": false, "livemode": s.live, "metadata": object{}, "payment_intent": d.charge.intent.id,
		"payment_method_details": object{"type": methodCard, methodCard: object{
			"brand": "visa", "case_type": "chargeback", "network": "visa", "network_reason_code": "10.4",
		}},
		"reason": d.reason, "status": d.status,
	}
}

func disputeEvidence() []string {
	return []string{
		"access_activity_log", "billing_address", "cancellation_policy", "cancellation_policy_disclosure", "cancellation_rebuttal",
		"customer_communication", "customer_email_address", "customer_name", "customer_purchase_ip", "customer_signature",
		"duplicate_charge_documentation", "duplicate_charge_explanation", "duplicate_charge_id", "product_description", "receipt",
		"refund_policy", "refund_policy_disclosure", "refund_refusal_explanation", "service_date", "service_documentation",
		"shipping_address", "shipping_carrier", "shipping_date", "shipping_documentation", "shipping_tracking_number",
		"uncategorized_file", "uncategorized_text",
	}
}

// settlement is how long after a movement its money is available.
const settlement = 2 * 24 * time.Hour

func (s *Server) movementObject(m *movement) object {
	status, fees := "pending", []any{}
	if !s.now().Before(m.created.Add(settlement)) {
		status = "available"
	}
	if m.fee != 0 {
		fees = append(fees, object{
			"amount": m.fee, "application": nil, "currency": m.currency, "description": "Simulated processing fee", "type": "stripe_fee",
		})
	}
	return object{
		"id": m.id, "object": "balance_transaction", "amount": m.amount, "available_on": m.created.Add(settlement).Unix(),
		"balance_type": "payments", "created": m.created.Unix(), "currency": m.currency, "description": nil, "exchange_rate": nil, "fee": m.fee,
		"fee_details": fees, "net": m.amount - m.fee, "reporting_category": m.category, "source": m.source, "status": status, "type": m.kind,
	}
}

func (s *Server) eventObject(e *event) object {
	undelivered := 0
	for _, d := range e.deliveries {
		if !d.done {
			undelivered++
		}
	}
	return object{
		"id": e.id, "object": "event", "api_version": e.version, "created": e.created.Unix(), "data": object{"object": maps.Clone(e.data)},
		"livemode": s.live, "pending_webhooks": undelivered, "request": object{"id": orNull(e.requestID), "idempotency_key": orNull(e.key)},
		"type": e.kind,
	}
}

// Package webhook sends signed events to addresses that tenants name. It connects to public
// addresses alone, checks each when it connects, follows no redirect, and bounds what it waits for
// and what it reads. A message is a CloudEvent in structured JSON form, signed as Standard Webhooks
// describes.
package webhook

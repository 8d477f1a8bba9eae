package payloadcodec

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/converter"
)

// DecodeHistory decrypts every payload of a history in place, and puts the texts of failures back
// where they stand without encryption. Anybody can then read and replay it without a key.
func (c *Codec) DecodeHistory(ctx context.Context, h *historypb.History) error {
	err := proxy.VisitPayloads(ctx, h, proxy.VisitPayloadsOptions{
		Visitor: func(_ *proxy.VisitPayloadsContext, p []*commonpb.Payload) ([]*commonpb.Payload, error) {
			return c.Decode(p)
		},
	})
	if err != nil {
		return err
	}
	return proxy.VisitFailures(ctx, h, proxy.VisitFailuresOptions{
		Visitor: func(_ *proxy.VisitFailuresContext, f *failurepb.Failure) error {
			converter.DecodeCommonFailureAttributes(converter.GetDefaultDataConverter(), f)
			f.EncodedAttributes = nil
			return nil
		},
	})
}

"""The edge broker: pure logic in `broker`, and around it the app that subscribers talk to."""

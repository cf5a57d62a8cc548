"""HTTP/1.1 connections: limits, strict request heads, and a close that lets slow clients read the answer."""

//! One end of a link over a network that loses, delays, repeats and reorders: what is sent arrives once and in order, for
//! as long as both ends live.
//!
//! LINK-1: a message is kept until the other end says that it has it.
//! LINK-2: an end that has begun anew is told from one that was only away: nothing is delivered across its beginning.
//!
//! Pure: the caller brings the frames across, and calls `again` from time to time.

use std::collections::VecDeque;

/// What crosses the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame<M> {
    /// The life of the sender, and the life of the receiver as the sender knows it (0 at first).
    pub from: u64,
    pub to: u64,
    /// Every message up to this number has arrived.
    pub ack: u64,
    /// The number of this message, from 1; none in a frame that only says that its sender lives.
    pub message: Option<(u64, M)>,
}

#[derive(Clone, Debug)]
pub struct Link<Out> {
    life: u64,
    peer: u64,
    received: u64,
    sent: u64,
    unacknowledged: VecDeque<(u64, Out)>,
}

/// What came of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Received<In> {
    Message(In),
    /// Heard, and nothing new.
    Nothing,
    /// The other end has begun anew: what was on its way to its earlier life is gone.
    Anew,
    /// From or to a life that is over.
    Stale,
}

impl<Out: Clone> Link<Out> {
    /// `life` is never the same twice, and later lives have higher numbers.
    pub fn new(life: u64) -> Self {
        Self { life, peer: 0, received: 0, sent: 0, unacknowledged: VecDeque::new() }
    }

    pub fn life(&self) -> u64 {
        self.life
    }

    pub fn send<M>(&mut self, message: M) -> Frame<Out>
    where
        M: Into<Out>,
    {
        self.sent += 1;
        let message = message.into();
        self.unacknowledged.push_back((self.sent, message.clone()));
        self.frame(Some((self.sent, message)))
    }

    /// A sign of life, and all that has not arrived yet.
    pub fn again(&self) -> Vec<Frame<Out>> {
        let unacknowledged = self.unacknowledged.iter().cloned().map(|message| self.frame(Some(message)));
        std::iter::once(self.frame(None)).chain(unacknowledged).collect()
    }

    pub fn receive<In>(&mut self, frame: Frame<In>) -> Received<In> {
        if frame.from < self.peer || (frame.to != 0 && frame.to != self.life) {
            return Received::Stale;
        }
        if frame.from > self.peer {
            let first = self.peer == 0;
            (self.peer, self.received) = (frame.from, 0);
            if !first {
                self.sent = 0;
                self.unacknowledged.clear();
                return Received::Anew;
            }
        }
        if frame.to == self.life {
            while self.unacknowledged.front().is_some_and(|(number, _)| *number <= frame.ack) {
                self.unacknowledged.pop_front();
            }
        }
        match frame.message {
            Some((number, message)) if number == self.received + 1 => {
                self.received = number;
                Received::Message(message)
            }
            // Too early is as good as lost: it comes again. One that was here is passed over.
            Some(_) | None => Received::Nothing,
        }
    }

    fn frame(&self, message: Option<(u64, Out)>) -> Frame<Out> {
        Frame { from: self.life, to: self.peer, ack: self.received, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers with a network that does what the numbers say, and gives what arrived.
    fn across(noise: impl Fn(usize) -> (bool, bool)) -> Vec<u32> {
        let (mut one, mut other) = (Link::<u32>::new(1), Link::<u32>::new(1));
        let mut arrived = Vec::new();
        let mut frames: Vec<Frame<u32>> = (0..20).map(|number: u32| one.send(number)).collect();
        let mut count = 0;
        while arrived.len() < 20 {
            for frame in std::mem::take(&mut frames) {
                count += 1;
                let (lost, twice) = noise(count);
                let times = if lost { 0 } else { 1 + usize::from(twice) };
                for _ in 0..times {
                    if let Received::Message(number) = other.receive(frame.clone()) {
                        arrived.push(number);
                    }
                }
            }
            for frame in other.again() {
                one.receive::<u32>(frame);
            }
            frames = one.again();
            assert!(count < 10_000, "LINK-1: it arrives in the end");
        }
        arrived
    }

    #[test]
    fn link_1_what_is_sent_arrives_once_and_in_order() {
        let expected: Vec<u32> = (0..20).collect();
        assert_eq!(across(|_| (false, false)), expected);
        // Dice without a period that a message could fall into.
        let dice = |count: usize| (count as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        assert_eq!(across(|count| (dice(count) < 5, dice(count) % 2 == 0)), expected);
        assert_eq!(across(|count| (dice(count) < 9, true)), expected);
    }

    #[test]
    fn link_2_nothing_is_delivered_across_a_new_life() {
        let (mut agent, mut head) = (Link::<u32>::new(7), Link::<u32>::new(1));
        assert_eq!(head.receive(agent.send(1u32)), Received::Message(1));
        assert_eq!(agent.receive(head.send(2u32)), Received::Message(2));
        let old = agent.send(3u32);
        let mut head = Link::<u32>::new(2);
        assert_eq!(head.receive(old), Received::Stale, "it was meant for the head that is gone");
        let hello = head.send(5u32);
        assert_eq!(agent.receive(hello.clone()), Received::Anew);
        assert_eq!(agent.receive(hello), Received::Message(5));
        assert_eq!(head.receive(agent.send(6u32)), Received::Message(6));
    }
}

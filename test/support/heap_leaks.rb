# frozen_string_literal: true

# Leaks as they happen in Ruby programs: each a script, the class of the objects that pile up (nil: one object grew),
# and the path to them, as a heap graph prints it.
module HeapLeaks
  Leak = Struct.new(:script, :held_class, :path, keyword_init: true)

  ORDER = "class Order; def initialize(number) = @text = \"order \#{number} \" + \"x\" * 100; end\n"
  private_constant :ORDER

  ALL = {
    class_level_hash: Leak.new(
      held_class: "Order", path: "Registry @orders → Hash",
      script: "#{ORDER}class Registry; @orders = {}; class << self; attr_reader :orders; end; end
               40_000.times { |number| Registry.orders[number] = Order.new(number) }"
    ),
    subscribers: Leak.new(
      held_class: "Subscriber", path: "Bus::HANDLERS → Hash {Symbol} → Array",
      script: "module Bus; HANDLERS = Hash.new { |hash, key| hash[key] = [] }; end
               class Subscriber; def initialize(n) = @state = \"state \#{n} \" * 10; def call = @state; end
               40_000.times { |number| Bus::HANDLERS[:created] << Subscriber.new(number) }"
    ),
    thread_locals: Leak.new(
      held_class: "Order", path: /\A\(vm\) → .*Thread at -e:\d+ \[:orders\] → Array\z/,
      script: "#{ORDER}worker = Thread.new { Thread.current[:orders] = []
                 40_000.times { |number| Thread.current[:orders] << Order.new(number) }
                 Thread.current[:done] = true; sleep }
               sleep 0.01 until worker[:done]; worker = nil"
    ),
    memoized_constant: Leak.new(
      held_class: "String", path: "Prices::CACHE → Hash",
      script: "module Prices; CACHE = {}; def self.of(id) = CACHE[id] ||= \"price of \#{id} \" * 20; end
               40_000.times { |id| Prices.of(id) }"
    ),
    private_constant: Leak.new(
      held_class: "Order", path: "Shop::ORDERS → Array",
      script: "#{ORDER}module Shop; ORDERS = []; private_constant :ORDERS; def self.add(order) = ORDERS << order; end
               40_000.times { |number| Shop.add(Order.new(number)) }"
    ),
    closure: Leak.new(
      held_class: "Order", path: /\AJob::CALLBACK → Proc at -e:\d+ → imemo_env → Array\z/,
      script: "#{ORDER}class Job; def self.callback(orders) = -> { orders.size }
                 orders = Array.new(40_000) { |number| Order.new(number) }; CALLBACK = callback(orders); end"
    ),
    finalizer: Leak.new(
      held_class: "Order", path: /\A\(finalizers\) → .*Proc at -e:\d+ → imemo_env → Array\z/,
      script: "#{ORDER}class Resource; def self.closer(orders) = proc { orders.clear }; end
               define_method(:leak) do
                 ObjectSpace.define_finalizer($resource = Resource.new,
                                              Resource.closer(Array.new(40_000) { |number| Order.new(number) }))
               end
               leak"
    ),
    weak_map_not_weak_enough: Leak.new(
      held_class: "Order", path: "Identity::VALUES → Hash",
      script: "#{ORDER}module Identity; MAP = ObjectSpace::WeakMap.new; VALUES = {}; end
               40_000.times { |number| order = Order.new(number); Identity::MAP[order] = number
                                       Identity::VALUES[number] = order }"
    ),
    association_cache: Leak.new(
      held_class: "Book", path: "Author::FIRST → Author @association_cache → Hash {Symbol} → Array",
      script: "class Book; def initialize(author, n) = (@author = author; @title = \"title \#{n} \" * 10); end
               class Author; def initialize = @association_cache = {}
                 def books = @association_cache[:books] ||= []; FIRST = new; end
               40_000.times { |number| Author::FIRST.books << Book.new(Author::FIRST, number) }"
    ),
    methods_by_eval: Leak.new(
      held_class: /\Aimemo_/, path: "Generated",
      script: "class Generated; end
               6_000.times do |n|
                 Generated.class_eval(\"def generated_\#{n} = [\#{n}, :a, :b].map { |x| x.to_s * 2 }\")
               end"
    ),
    string_buffer: Leak.new(
      held_class: nil, path: "Log @buffer → String",
      script: "class Log; @buffer = +''; def self.write(line) = @buffer << line; end
               200_000.times { |number| Log.write(\"line \#{number} of a log that nobody flushes\\n\") }"
    ),
    queue_without_reader: Leak.new(
      held_class: "Order", path: "Jobs::QUEUE → Thread::Queue → T_ARRAY",
      script: "#{ORDER}module Jobs; QUEUE = Thread::Queue.new; end
               40_000.times { |number| Jobs::QUEUE << Order.new(number) }"
    ),
    timer_list: Leak.new(
      held_class: "Timer", path: "Scheduler @@timers → Array",
      script: "class Timer; def initialize(at) = (@at = at; @text = \"at \#{at} \" * 10); end
               class Scheduler; @@timers = []; def self.add(timer) = @@timers << timer; end
               40_000.times { |number| Scheduler.add(Timer.new(number)) }"
    ),
    linked_list: Leak.new(
      held_class: "Node", path: "Chain @head → Node",
      script: "class Node; def initialize(next_node, n) = (@next_node = next_node; @text = \"node \#{n} \" * 10); end
               class Chain; @head = nil; def self.push(n) = @head = Node.new(@head, n); end
               40_000.times { |number| Chain.push(number) }"
    ),
    global_variable: Leak.new(
      held_class: "Array", path: "$log → Array",
      script: "$log = []; 40_000.times { |number| $log << [number, \"entry \#{number} \" * 10] }"
    )
  }.freeze
end

# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # Which objects hold the memory of Ruby's heap, from the references between all of its objects: the memory that each
  # class retains, the objects that retain most with the paths to them, and the garbage.
  #
  #   graph = Memscope.heap_graph(paths_to: Order)
  #   graph.paths.first.to_s     # => "Bus::HANDLERS → Hash → Array → Proc → Order"
  #   graph.retained.first.name  # => "Array"
  #
  # An object retains its own bytes, and those of the objects that are reachable only through it. Bytes are those of
  # slots and of the malloc memory that objects report. Weak references hold nothing. A thread or fiber holds the
  # objects on its stack.
  class HeapGraph < Reading
    autoload :Growth, File.join(__dir__, "heap_graph/growth.rb")

    # An object on a path, or several of one class in a row.
    class Step < Record
      # The kinds of reference from one step to the next. :internal is a reference that Ruby code cannot name.
      EDGES = declared(:edge).one_of
    end

    # Shortest paths that are alike: through objects of the same classes, by the same constants and variables.
    class Path < Record
      # How each kind of edge is written between two steps. Other kinds are not shown.
      SIGNS = { constant: "::%s", ivar: " %s", cvar: " %s", local: " %s", value: " {%s}", index: " [%s]", key: " key",
                class: " class", thread_local: " [:%s]" }.freeze
      # The names of roots in texts, where Ruby's own are less clear.
      ROOTS = { "end_proc" => "at_exit", "global_symbols" => "symbols" }.freeze
      ASCII = { "→" => "->", "…" => "...", "×" => "x" }.freeze
      private_constant :SIGNS, :ROOTS, :ASCII

      # @param unicode [Boolean] false: plain ASCII, except for names
      # @return [String] "Bus::HANDLERS → Hash {String} → Array"
      def to_s(unicode: true) = links.join(" → ").then { |text| unicode ? text : text.gsub(/[→…×]/, ASCII) }

      # @return [Array<String>] the path's objects, each with how it refers to the next: "Bus::HANDLERS",
      #   "Hash {String}", "Array"; in a long path, "… 3 more" replaces the steps that are left out
      def links
        first, *others = steps
        names = [beginning(first, others.first), *others.map { |step| label(step) }]
        signs = others.map { |step| sign(step) }
        if steps_left_out.positive?
          names.insert((others.size / 2) + 1, "… #{steps_left_out} more")
          signs.insert(others.size / 2, "")
        end
        first, *others = names.zip(signs).map(&:join)
        [first.delete_prefix("::"), *others]
      end

      # @api private
      def own? = Terms.own_path?(steps.map(&:to_h))

      private

      # A path from a global variable, or from a constant at the top level, begins with that name.
      def beginning(first, second)
        return second.by if second&.edge == :global && second.by
        return "" if second&.edge == :constant && first.name == "Object"

        first.name.match?(/\A[A-Z#]/) ? label(first) : "(#{ROOTS.fetch(first.name, first.name)})"
      end

      # If several paths are alike, each has an index of its own, so no index is shown.
      def sign(step)
        return "" if step.edge == :index && count > 1
        return " [key]" if step.edge == :thread_local && step.by.nil?

        step.by || %i[key class].include?(step.edge) ? format(SIGNS.fetch(step.edge, ""), step.by) : ""
      end

      def label(step)
        text = step.times > 1 ? "#{step.name} ×#{step.times}" : step.name
        text += " #{step.thread_name.inspect}" if step.thread_name
        step.made_at ? "#{text} at #{step.made_at}" : text
      end
    end

    # An object that retains much.
    class Dominator < Record
      # @api private
      def own? = path ? path.own? : Terms.own?(name)
    end

    # The reachable Strings. No content is shown: contents are compared by a hash, whose key is drawn for each graph.
    class Strings < Record
      # @api private
      def cut(rows) = changed(duplicates: duplicates.first(rows).freeze)
    end

    # The allowed numbers of rows.
    TOP = (1..1000)
    # The allowed places to walk the heap in.
    PLACES = %i[fork process].freeze
    # The allowed seconds for a child.
    DEADLINES = (0.1..3600)
    OPTIONS = { top: 20, paths_to: nil, strings: false, in: :fork, deadline: 60 }.freeze
    private_constant :OPTIONS

    class << self
      # (see Memscope.heap_graph)
      def take(native: Native, **given)
        options = checked(given)
        kind, target, named = target_of(options[:paths_to])
        body = native.heap_graph(options[:top], kind, target, options[:strings], options[:in] == :process,
                                 (options[:deadline] * 1000).ceil)
        answered(body, named)
      end

      # Paths to objects that no variable of the caller holds, in a child.
      # @api private
      # @param kind [Symbol] :sampled, objects from Native.object_profile_with_objects; or :addresses
      # @param objects [String] the sampled objects, which this call overwrites; or words, the addresses of live objects
      def to_objects(kind, objects, named)
        objects = objects.unpack("J*").sort.pack("J*") if kind == :addresses
        body = Native.heap_graph(OPTIONS[:top], kind, objects, false, false, OPTIONS[:deadline] * 1000)
        capture(named_in(body).update(paths_to: named))
      end

      # Makes the graph of a dump that ObjectSpace.dump_all wrote in any Ruby since 2.7, in about 2 s per gigabyte. Such
      # a dump does not name references. A dump that Memscope.dump wrote names constants and variables.
      #
      # @param path [String]
      # @param top [Integer] rows of each list
      # @param paths_to [String, nil] the name of a class, to whose instances paths lead; nil: where memory accumulated
      # @return [HeapGraph] with a reason instead of an answer if the file is not such a dump
      # @raise [ArgumentError] for an invalid argument
      # @raise [SystemCallError] if the file cannot be opened
      def read(path, top: OPTIONS[:top], paths_to: nil)
        checked(top: top)
        refuse("paths_to", paths_to, "the name of a class, nil") unless paths_to.nil? || paths_to.is_a?(String)
        check_name(paths_to) if paths_to
        body = File.open(path, "rb") { |file| Native.heap_graph_of_dump(file.fileno, top, paths_to) }
        answered(body.update(source: File.path(path)), paths_to)
      end

      # The growth from one dump of a process to a later one. Of three dumps, only objects that were allocated between
      # the first two and are still there in the third count as new. Reads each as `read` does.
      #
      # @param first [String] the path of the earliest dump
      # @param second [String]
      # @param third [String, nil]
      # @param top [Integer] rows of each list
      # @return [Growth] with a reason instead of an answer if the files cannot be compared
      # @raise [ArgumentError] for an invalid argument
      # @raise [SystemCallError] if a file cannot be opened
      def growth(first, second, third = nil, top: OPTIONS[:top])
        Growth.read([first, second, *third], top: checked(top: top)[:top])
      end

      private

      def answered(body, paths_to)
        none = paths_to && body[:target_count]&.zero? && body[:unreachable_target_count].zero?
        body[:reasons][:target_count] = :class_without_objects if none
        capture(named_in(body).update(paths_to: paths_to))
      end

      # Memscope's own rows come last.
      def named_in(body)
        %i[retained garbage].each { |list| own_last(body[list]) { |row| Terms.own?(row[:name]) } }
        own_last(body[:paths]) { |path| Terms.own_path?(path[:steps]) }
        own_last(body[:dominators]) { |one| Terms.own_path?(one.dig(:path, :steps) || [one]) }
        body[:reasons][:names] = body[:source] ? :names_from_code : :names_of_threads if body[:reachable_count]
        body
      end

      def own_last(rows, &) = rows.replace(rows.partition(&).reverse.flatten(1))

      def checked(given)
        unknown = given.keys - OPTIONS.keys
        refuse("option", unknown.first, OPTIONS.keys.join(", ")) if unknown.any?
        options = OPTIONS.merge(given)
        top = options[:top]
        refuse("top", top, "an Integer from 1 to 1000") unless top.is_a?(Integer) && TOP.cover?(top)
        Field.choice(:in, options[:in], PLACES, call: "Memscope.heap_graph")
        check_switch(:strings, options[:strings])
        Field.seconds(:deadline, options[:deadline], DEADLINES, call: "Memscope.heap_graph")
        options
      end

      # The kind and the object for Native, and the text for the reading.
      def target_of(paths_to)
        case paths_to
        when nil then nil
        when Module then [:class, paths_to, name_of(paths_to)]
        when String then check_name(paths_to)
        when true, false, Numeric, Symbol
          refuse("paths_to", paths_to, "a Class, a Module, a String that names a class, another object, nil")
        else [:object, paths_to, "one #{name_of(Kernel.instance_method(:class).bind_call(paths_to))}"]
        end
      end

      def check_name(name)
        return [:name, name, name] unless name.empty? || name.include?("\0")

        refuse("paths_to", name, "the name of a class, such as \"Order\", or what `retained` calls internal objects")
      end

      # Classes can redefine these methods, and a BasicObject has none.
      def name_of(mod) = Module.instance_method(:name).bind_call(mod) || "anonymous"

      def refuse(what, given, allowed) = Field.refuse(what, given, allowed, call: "Memscope.heap_graph")
    end

    # @api private
    def cut(rows)
      lists = values.slice(:retained, :dominators, :paths, :garbage)
      changed(**lists.transform_values { |list| list.first(rows).freeze }, strings: strings&.cut(rows))
    end
  end
end
